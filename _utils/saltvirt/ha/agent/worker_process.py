"""A worker process for calls that may hang, with lines of JSON as requests and replies."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from saltvirt import errors

log = logging.getLogger(__name__)

_END_S = 0.5


class WorkerProcess:
    """A worker process that is started when it is needed. argv: its command line. stopping: set
    when it is no longer needed."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.stopping = threading.Event()
        self._argv, self._last_message = list(argv), ""
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def session(self) -> Iterator[Callable[[bytes], Any]]:
        """Run the process for the block. The function that it yields sends a line and returns the
        reply. Raises OSError; OperationFailed if the process ends; ValueError if the reply is no
        JSON."""
        pipe = subprocess.PIPE
        with subprocess.Popen(self._argv, stdin=pipe, stdout=pipe) as process:
            self._process = process
            assert process.stdin and process.stdout
            stdin, stdout = process.stdin, process.stdout

            def ask(line: bytes) -> Any:
                stdin.write(line + b"\n")
                stdin.flush()
                if not (answer := stdout.readline()):
                    raise errors.OperationFailed("the worker process has ended")
                return json.loads(answer)

            try:
                yield ask
            finally:
                # end() may have been called before the process existed
                if self.stopping.is_set():
                    process.kill()

    def end(self) -> None:
        """End the process for good, if possible."""
        self.stopping.set()
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)

    def log_once(self, text: str) -> None:
        """Log a text unless it was the last one."""
        if text != self._last_message:
            log.info("%s", text)
        self._last_message = text


def serve_lines(
    folder: str, lines: BinaryIO, answers: BinaryIO, handle: Callable[[bytes], dict[str, Any]]
) -> None:
    """The worker's side: handle each line and write the result, or ``trouble`` with the error."""
    for line in lines:
        try:
            reply = handle(line)
        except OSError as exc:
            reply = {"trouble": f"{exc.strerror} ({exc.filename or folder})"}
        except errors.VirtError as exc:
            reply = {"trouble": exc.text}
        answers.write(json.dumps(reply).encode() + b"\n")
        answers.flush()
