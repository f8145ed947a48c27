"""A process that does for the agent what may hang for ever, and lines of JSON to it and from it."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from saltvirt import errors

log = logging.getLogger(__name__)

_END_S = 0.5


class WorkerProcess:
    """One such process, begun again as often as it is needed. argv: what runs it. ends: whether it
    is needed no more."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.stopping = False
        self._argv, self._last_message = list(argv), ""
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def session(self) -> Iterator[Callable[[bytes], Any]]:
        """For the block it runs; by what is given it is told a line, and answers with JSON. Raises
        OSError, OperationFailed where it ends, ValueError where its answer is none."""
        pipe = subprocess.PIPE
        with subprocess.Popen(self._argv, stdin=pipe, stdout=pipe) as process:
            self._process = process
            assert process.stdin and process.stdout
            stdin, stdout = process.stdin, process.stdout

            def ask(line: bytes) -> Any:
                stdin.write(line + b"\n")
                stdin.flush()
                if not (answer := stdout.readline()):
                    raise errors.OperationFailed("its process has ended")
                return json.loads(answer)

            try:
                yield ask
            finally:
                # who ended this before the process was there has not killed it
                if self.stopping:
                    process.kill()

    def end(self) -> None:
        """Ends the process for good, if it can be ended."""
        self.stopping = True
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)

    def log_once(self, text: str) -> None:
        """Into the log, once."""
        if text != self._last_message:
            log.info("%s", text)
        self._last_message = text


def serve_lines(
    folder: str, lines: BinaryIO, answers: BinaryIO, handle: Callable[[bytes], dict[str, Any]]
) -> None:
    """The process' side: does each line that comes and answers what came of it, or ``trouble``."""
    for line in lines:
        try:
            reply = handle(line)
        except OSError as exc:
            reply = {"trouble": f"{exc.strerror} ({exc.filename or folder})"}
        except errors.VirtError as exc:
            reply = {"trouble": exc.text}
        answers.write(json.dumps(reply).encode() + b"\n")
        answers.flush()
