"""Start a detached process that outlives its job. It reads its request as JSON from standard input,
and writes one line of JSON when it is ready."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from saltvirt import errors
from saltvirt.schema import Message
from saltvirt.system import paths, private_folder, tools, zipapp

_START_TIMEOUT_S = 60
# a program that has reported an error ends soon
_END_TIMEOUT_S = 5


class ProcessDied(errors.OperationFailed):
    """A program died, or was killed after its timeout, before it reported anything."""


def spawn(
    library: str, module: str, request: Message, failure: str, *arguments: str,
    folder: str | None = None, timeout_s: float = _START_TIMEOUT_S,
) -> dict[str, Any]:  # fmt: skip
    """Start the program and return its first message.

    library: the folder of the package saltvirt. module: the program's, with ``main``. failure:
    begins the message of ProcessDied. arguments: shown by ``ps``. folder: of the unpacked program,
    default ``/run/salt-virt``. Raises OperationFailed with the error that the program reports, and
    ProcessDied.
    """
    path = zipapp.unpacked_folder(library, module, private_folder.ensure(folder or paths.RUN))
    with tempfile.TemporaryFile() as log:
        process = tools.start_session(
            [sys.executable, path, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=log, env=tools.environment(), cwd="/",
        )  # fmt: skip
        tools.send_json(process, request.to_answer())
        return _response(process, log, failure, timeout_s)


def _response(
    process: subprocess.Popen[bytes], log: IO[bytes], failure: str, timeout_s: float
) -> dict[str, Any]:
    response: Any = None
    with contextlib.suppress(ValueError):
        response = json.loads(_first_line(tools.pipe(process.stdout), timeout_s))
    if isinstance(response, dict):
        if response and "error" not in response:
            return response
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_TIMEOUT_S)
        raise errors.OperationFailed(str(response.get("error", "no reason was given")))
    process.kill()
    process.wait()
    log.seek(0)
    raise ProcessDied(f"{failure}: {tools.last_output(log.read())}")


def _first_line(stdout: IO[bytes], timeout_s: float) -> bytes:
    """Return the first line of the program's output; empty if the program dies or exceeds the
    timeout."""
    line, deadline = b"", time.monotonic() + timeout_s
    while not line.endswith(b"\n"):
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0 or not select.select([stdout], [], [], remaining_s)[0]:
            return b""
        chunk = os.read(stdout.fileno(), 65536)
        if not chunk:
            return b""
        line += chunk
    return line


def send(data: dict[str, Any]) -> None:
    """Send a message of the detached program to the process that started it."""
    print(json.dumps(data), flush=True)
