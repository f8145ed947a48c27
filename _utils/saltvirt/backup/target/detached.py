"""Start a detached process that outlives its job. It reads its request as JSON from standard input,
and writes one line of JSON when it is ready."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from typing import Any

from saltvirt import errors
from saltvirt.schema import Message
from saltvirt.system import paths, private_folder, tools, zipapp

_BEGINS_S = 60


def spawn(library: str, module: str, request: Message, description: str) -> dict[str, Any]:
    """Start the program and return its first message.

    library: the folder of the package saltvirt. description: of the program, for messages. Raises
    OperationFailed if it does not start.
    """
    process = subprocess.Popen(
        [sys.executable, zipapp.unpacked_folder(library, module,
        private_folder.ensure(paths.RUN))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env=tools.environment(), cwd="/", start_new_session=True,
    )  # fmt: skip
    tools.send_json(process, request.to_answer())
    stdout = tools.pipe(process.stdout)
    line = stdout.readline() if select.select([stdout], [], [], _BEGINS_S)[0] else b""
    try:
        response: dict[str, Any] = json.loads(line)
    except ValueError as exc:
        process.kill()
        process.wait()
        raise errors.OperationFailed(f"{description} died without an answer") from exc
    if "error" in response:
        raise errors.OperationFailed(response["error"])
    return response


def send(data: dict[str, Any]) -> None:
    """Send a message of the detached program to the process that started it."""
    print(json.dumps(data), flush=True)
