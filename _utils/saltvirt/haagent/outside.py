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


class Outside:
    """One such process, begun again as often as it is needed. argv: what runs it. ends: whether it
    is needed no more."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.ends = False
        self._argv, self._said = list(argv), ""
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def begun(self) -> Iterator[Callable[[bytes], Any]]:
        """For the block it runs; by what is given it is told a line, and answers with JSON. Raises
        OSError, OperationFailed where it ends, ValueError where its answer is none."""
        pipe = subprocess.PIPE
        with subprocess.Popen(self._argv, stdin=pipe, stdout=pipe) as process:
            self._process = process
            assert process.stdin and process.stdout
            to, of = process.stdin, process.stdout

            def ask(line: bytes) -> Any:
                to.write(line + b"\n")
                to.flush()
                if not (answer := of.readline()):
                    raise errors.OperationFailed("its process has ended")
                return json.loads(answer)

            try:
                yield ask
            finally:
                # who ended this before the process was there has not killed it
                if self.ends:
                    process.kill()

    def end(self) -> None:
        """Ends the process for good, if it can be ended."""
        self.ends = True
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)

    def say(self, text: str) -> None:
        """Into the log, once."""
        if text != self._said:
            log.info("%s", text)
        self._said = text


def answer(
    folder: str, lines: BinaryIO, answers: BinaryIO, do: Callable[[bytes], dict[str, Any]]
) -> None:
    """The process' side: does each line that comes and answers what came of it, or ``trouble``."""
    for line in lines:
        try:
            told = do(line)
        except OSError as exc:
            told = {"trouble": f"{exc.strerror} ({exc.filename or folder})"}
        except errors.VirtError as exc:
            told = {"trouble": exc.text}
        answers.write(json.dumps(told).encode() + b"\n")
        answers.flush()
