"""Start and end the export of a guest's disks on behalf of the master."""

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

from saltvirt import errors
from saltvirt.backup.export import export_server, request
from saltvirt.backup.export.request import BackupJournal, EndRequest, ServeRequest
from saltvirt.backup.model.answers import Serving, ServingEnd
from saltvirt.host.connection import libvirt, translated
from saltvirt.system import private_folder, tools, zipapp

# libvirt may wait for a job, and for a guest agent that does not answer
_BEGINS_S = 300
_ENDS_S = 120


def begin(library: str, conn: libvirt.virConnect, serve_request: ServeRequest) -> Serving:
    """Start a process that exports the guest's disks until ``end``.

    library: the folder of the package saltvirt. Raises OperationFailed; in this case nothing is
    exported.
    """
    with contextlib.suppress(OSError):  # no backup is running
        response = _send(serve_request.guest, EndRequest(request.ANY_BACKUP, False))
        if "error" in response:
            raise errors.OperationFailed(response["error"])
    sweep(conn)
    path = zipapp.unpacked_folder(library, export_server.MODULE, private_folder.ensure(request.RUN))
    with tempfile.TemporaryFile() as log:
        return _spawn(conn, serve_request, path, log)


def _spawn(
    conn: libvirt.virConnect, serve_request: ServeRequest, path: str, log: IO[bytes]
) -> Serving:
    process = subprocess.Popen(
        [sys.executable, path, serve_request.guest], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=log, env=tools.environment(), cwd="/", start_new_session=True,
    )  # fmt: skip
    tools.send_json(process, serve_request.to_answer())
    line = _first_line(process)
    with contextlib.suppress(ValueError):
        response = json.loads(line)
        if "serving" in response:
            return Serving.from_answer(response["serving"], serve_request.host)
        raise errors.OperationFailed(response.get("error", "no reason was given"))
    process.kill()
    process.wait()
    log.seek(0)
    clean(conn, serve_request.guest)
    raise errors.OperationFailed(
        f"cannot export the disks of {serve_request.guest}: {tools.last_output(log.read())}"
    )


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    """Read the first line of output; empty if the process dies or does not answer in time."""
    stdout = tools.pipe(process.stdout)
    buffer, deadline = b"", time.monotonic() + _BEGINS_S
    while not buffer.endswith(b"\n"):
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0 or not select.select([stdout], [], [], remaining_s)[0]:
            return b""
        chunk = os.read(stdout.fileno(), 65536)
        if not chunk:
            return b""
        buffer += chunk
    return buffer


def end(conn: libvirt.virConnect, guest: str, end_request: EndRequest) -> ServingEnd:
    """End the export and remove its files. Raises OperationFailed if this is not possible."""
    try:
        response = _send(guest, end_request)
    except OSError as exc:
        cleaned_id = clean(conn, guest)
        # the process removes its socket unless it was killed
        died = cleaned_id == end_request.ident if cleaned_id else isinstance(exc, ConnectionError)
        reason = "the process that exported the disks died" if died else None
        return ServingEnd(why=_end_reason(guest, end_request.ident) or reason)
    if "error" in response:
        raise errors.OperationFailed(response["error"])
    return ServingEnd.from_answer(response, f"the backup of {guest}")


def clean(conn: libvirt.virConnect, guest: str) -> str | None:
    """Clean up after a dead process; return the backup that it exported, or None.

    Raises OperationFailed if a process is running.
    """
    with BackupJournal(guest).lock() as journal:
        session = journal.read()
        export_server.recover(conn, journal)
        for path in request.runtime_files(guest):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        return session.ident if session else None


def sweep(conn: libvirt.virConnect) -> list[str]:
    """Clean up after dead processes of all guests, also of guests that run on another host by now.
    Return the guests. Running backups are not affected."""
    guests = []
    for session in request.list_sessions():
        with contextlib.suppress(errors.VirtError), translated():
            if clean(conn, session.guest):
                guests.append(session.guest)
    return guests


def _send(guest: str, end_request: EndRequest) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ENDS_S)
        connection.connect(request.socket_path(guest))
        with connection.makefile("rwb") as stream:
            stream.write(json.dumps(end_request.to_answer()).encode() + b"\n")
            stream.flush()
            answer = stream.readline()
    try:
        response: dict[str, Any] = json.loads(answer)
    except ValueError as exc:
        raise ConnectionResetError("the process ended without an answer") from exc
    return response


def _end_reason(guest: str, backup_id: str) -> str | None:
    """Return the reason that the process stored when it ended by itself."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        with open(request.end_reason_path(guest), encoding="utf-8") as file:
            report = json.load(file)
        if report["ident"] == backup_id:
            return str(report["why"])
    return None
