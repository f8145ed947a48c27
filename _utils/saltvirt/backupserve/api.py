"""A backup of a guest of this host, as the master has it done: looked at, begun, ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from saltvirt import errors, program
from saltvirt.backups.answers import Serving, ServingEnded
from saltvirt.backupserve import keeper, request
from saltvirt.backupserve.request import EndRequest, Journal, ServeRequest
from saltvirt.host.connection import libvirt, translated
from saltvirt.images import locks, tools

# libvirt has a moment to wait for, and a guest agent that does not answer
_BEGINS_S = 300
_ENDS_S = 120


def begin(library: str, conn: libvirt.virConnect, asked: ServeRequest) -> Serving:
    """Has the guest's disks served by a process of their own, until ``end``. library: the folder of
    the package saltvirt. Raises OperationFailed, and then nothing is served."""
    with contextlib.suppress(OSError):  # none is under way
        left = _spoken(asked.guest, EndRequest(request.ANOTHER, False))
        if "error" in left:
            raise errors.OperationFailed(left["error"])
    sweep(conn)
    path = program.kept(library, keeper.MODULE, locks.private(request.RUN))
    with tempfile.TemporaryFile() as log:
        return _begun(conn, asked, path, log)


def _begun(conn: libvirt.virConnect, asked: ServeRequest, path: str, log: IO[bytes]) -> Serving:
    process = subprocess.Popen(
        [sys.executable, path, asked.guest], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=log, env=tools.environment(), cwd="/", start_new_session=True,
    )  # fmt: skip
    tools.tell(process, asked.to_answer())
    line = _line(process)
    with contextlib.suppress(ValueError):
        said = json.loads(line)
        if "serving" in said:
            return Serving.from_answer(said["serving"], asked.host)
        raise errors.OperationFailed(said.get("error", "it did not say why"))
    process.kill()
    process.wait()
    log.seek(0)
    clean(conn, asked.guest)
    raise errors.OperationFailed(
        f"the disks of {asked.guest} are not served: {tools.last_words(log.read())}"
    )


def _line(process: subprocess.Popen[bytes]) -> bytes:
    """What it said first; nothing where it died, or takes too long."""
    stdout = tools.pipe(process.stdout)
    found, deadline = b"", time.monotonic() + _BEGINS_S
    while not found.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([stdout], [], [], left)[0]:
            return b""
        more = os.read(stdout.fileno(), 65536)
        if not more:
            return b""
        found += more
    return found


def end(conn: libvirt.virConnect, guest: str, told: EndRequest) -> ServingEnded:
    """Nothing of the backup is served any more, nothing of it is left here. Raises OperationFailed
    where it cannot be ended."""
    try:
        said = _spoken(guest, told)
    except OSError as exc:
        begun = clean(conn, guest)
        # it leaves no socket where it was not killed
        died = begun == told.ident if begun else isinstance(exc, ConnectionError)
        why = "the process that kept them served died" if died else None
        return ServingEnded(why=_why_ended(guest, told.ident) or why)
    if "error" in said:
        raise errors.OperationFailed(said["error"])
    return ServingEnded.from_answer(said, f"the backup of {guest}")


def clean(conn: libvirt.virConnect, guest: str) -> str | None:
    """Ends what a process that died has begun: of which backup, None where there was nothing.
    Raises OperationFailed where one is at work."""
    with Journal(guest).held() as journal:
        begun = journal.read()
        keeper.recover(conn, journal)
        for path in request.traces_of(guest):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        return begun.ident if begun else None


def sweep(conn: libvirt.virConnect) -> list[str]:
    """Ends what processes that died have begun for any guest: one that is on another host by now,
    too, so that what it overwrote lies here no longer. The guests of which something was left.
    What is at work is left alone."""
    found = []
    for begun in request.begun_here():
        with contextlib.suppress(errors.VirtError), translated():
            if clean(conn, begun.guest):
                found.append(begun.guest)
    return found


def _spoken(guest: str, told: EndRequest) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(_ENDS_S)
        line.connect(request.socket_of(guest))
        with line.makefile("rwb") as stream:
            stream.write(json.dumps(told.to_answer()).encode() + b"\n")
            stream.flush()
            answer = stream.readline()
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError as exc:
        raise ConnectionResetError("it ended without an answer") from exc
    return found


def _why_ended(guest: str, ident: str) -> str | None:
    """Why the process that served it ended before it was told to, as it said itself."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        with open(request.ended_of(guest), encoding="utf-8") as file:
            found = json.load(file)
        if found["ident"] == ident:
            return str(found["why"])
    return None
