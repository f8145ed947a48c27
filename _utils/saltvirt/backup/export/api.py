"""Start and end the export of a guest's disks on behalf of the master."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Any

from saltvirt import errors
from saltvirt.backup.export import export_server, request
from saltvirt.backup.export.request import BackupJournal, EndRequest, ServeRequest
from saltvirt.backup.model.answers import Serving, ServingEnd
from saltvirt.host.connection import libvirt, translated
from saltvirt.system import detached

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
    failure = f"cannot export the disks of {serve_request.guest}"
    try:
        response = detached.spawn(
            library, export_server.MODULE, serve_request, failure, serve_request.guest,
            folder=request.RUN, timeout_s=_BEGINS_S,
        )  # fmt: skip
    except detached.ProcessDied:
        clean(conn, serve_request.guest)
        raise
    return Serving.from_answer(response["serving"], serve_request.host)


def end(conn: libvirt.virConnect, guest: str, end_request: EndRequest) -> ServingEnd:
    """End the export and remove its files. Raises OperationFailed if this is not possible."""
    try:
        response = _send(guest, end_request)
    except OSError as exc:
        cleaned_id = clean(conn, guest)
        # the process removes its socket unless it was killed
        died = (
            cleaned_id == end_request.backup_id if cleaned_id else isinstance(exc, ConnectionError)
        )
        reason = "the process that exported the disks died" if died else None
        return ServingEnd(reason=_end_reason(guest, end_request.backup_id) or reason)
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
        return session.backup_id if session else None


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
        if report["backup_id"] == backup_id:
            return str(report["reason"])
    return None
