"""Export server: a detached process that exports a guest's disks while they are read for a backup,
and cleans up afterwards.

It ends on request, if there was no reader for a while, if the guest has overwritten so much that
the host's storage runs full, or if the guest is stopped.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from saltvirt import errors, settings, units
from saltvirt.backup.export import (
    checkpoints,
    definition,
    guest_state,
    inspect_guest,
    request,
    running,
    stopped,
)
from saltvirt.backup.export.request import BackupJournal, BackupSession, EndRequest, ServeRequest
from saltvirt.backup.model import archive, chains, record
from saltvirt.backup.model.answers import ServedDisk, Serving, ServingEnd
from saltvirt.backup.target import daemon, relay
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import creation, guest_lock, lookup
from saltvirt.system import detached

MODULE = "backup.export.export_server"
# end after this time without a reader: the target host connects for each disk
IDLE_S = 120
# the same if another backup of the guest is requested: the requester of this one may have died
ABANDONED_S = 20
# reserved on the file system of the overwritten blocks
RESERVED_BYTES = 256 * 1024**2
# timeout for a request on the socket, during which nothing else is checked
_POLL_S, _SAYS_S = 2, 10
# interval of the checks for free space, and number of intervals for which space has to be left
_ACCEPT_S, _AHEAD = 0.25, 8
# time for libvirt to restart before the cleanup is left to other processes
_BACK_S = 60
_MAX_BYTES = 1024**2
# unit of st_blocks
_BLOCK = 512
_MIB = 1024**2
# further callers get an error at once
_CALLERS = 16


class ExportServer:
    """One exported backup. The caller holds its journal."""

    def __init__(self, serve_request: ServeRequest, journal: BackupJournal) -> None:
        self._request, self._journal = serve_request, journal
        self._server: daemon.StorageDaemon | None = None
        self._session: BackupSession | None = None
        self._relay: relay.Relay | None = None
        self._state: tuple[relay.Relay, daemon.StorageDaemon] | None = None
        self._locks = contextlib.ExitStack()
        self._last_s = time.monotonic()
        self._scratch = ScratchSpace(
            serve_request.scratch, running.scratch_folder(serve_request), serve_request.scratch_mib
        )
        self._checked_s = 0.0
        self.signalled = False

    @contextlib.contextmanager
    def _libvirt(self) -> Iterator[libvirt.virConnect]:
        """Yield a new connection to libvirt, which may have been restarted."""
        serve_request = self._request
        with connection.connect(
            settings.Connection(serve_request.uri, serve_request.username, serve_request.password)
        ) as conn:
            yield conn

    @property
    def is_guest_off(self) -> bool:
        """Whether the guest is off and must not be started."""
        return self._server is not None

    def begin(self) -> Serving:
        """Start the export. Raises VirtError; in this case nothing is exported."""
        with self._libvirt() as conn:
            recover(conn, self._journal)
            dom = lookup.lookup(conn, self._request.guest)
            creation.require_complete(dom, "back up")
            self._scratch.check()
            self._session = BackupSession(
                self._request.guest, dom.UUIDString(), self._request.backup_id,
                running.scratch_folder(self._request), bool(dom.isActive()),
                paused=running.is_paused_by_io(dom),
            )  # fmt: skip
            self._journal.write(self._session)
            try:
                return self._serve(conn, dom, self._session)
            except BaseException:
                self.undo()
                raise

    def _serve(
        self, conn: libvirt.virConnect, dom: libvirt.virDomain, session: BackupSession
    ) -> Serving:
        inspection, note = inspect_guest.inspect(conn, self._request.guest), None
        if session.active:
            running.make_scratch(session.scratch)
            disks, consistency, note, taken_at = running.begin(
                dom, inspection, self._request,
                lambda frozen: self._journal.write(replace(session, frozen=frozen)),
            )  # fmt: skip
        else:
            consistency = record.STOPPED
            if dom.hasManagedSaveImage():
                consistency, note = (
                    record.CRASH,
                    ("the guest has saved memory, which is not backed up"),
                )
            taken_at = record.format_time(time.time())
            disks, self._server = stopped.begin(conn, dom, inspection, self._request, self._locks)
        exports_path = (
            running.exports_path(dom)
            if session.active
            else request.exports_path(self._request.guest)
        )
        self._relay = relay.begin(self._request.endpoint, exports_path)
        is_encrypted = all(disk.encrypt for disk in self._request.disks)
        state_files = guest_state.collect(conn, dom, is_encrypted)
        state_disk = self._show_state(state_files.files)
        return Serving(
            inspection.uuid, self._request.host, self._relay.port, consistency,
            definition.build(dom),
            tuple(disks), self._request.endpoint.credentials.authority, note, taken_at,
            {**inspection.skipped, **definition.excluded_devices(dom), **state_files.skipped},
            state_disk, self._state[0].port if self._state else None,
        )  # fmt: skip

    def _show_state(self, files: dict[str, bytes]) -> ServedDisk | None:
        """Export firmware variables and TPM state on a port of its own, because a running guest's
        QEMU exports disks only."""
        if not files:
            return None
        guest, data = self._request.guest, archive.pack(files)
        path, inner = request.state_path(guest), request.state_exports_path(guest)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
        server = daemon.begin([daemon.ExportedDisk(path, record.RAW, record.STATE)], inner)
        try:
            self._state = relay.begin(self._request.endpoint, inner), server
        except BaseException:
            server.end()
            raise
        about = record.STATE, len(data), "the guest's state", record.STATE
        return ServedDisk(*about, reason="the state is always backed up in full")

    def stop_reason(self) -> str | None:
        """Return why the export has to end; None if it can continue."""
        if self.signalled:
            return "the export was ended by a signal"
        try:
            if not self.is_guest_off:  # without libvirt, which may not answer
                self._scratch.check()
            reason = self._failure_reason()
        except errors.ConnectionFailed:
            reason = None  # libvirt is being restarted; the guest's QEMU continues to export
        except errors.VirtError as exc:
            reason = exc.text
        if reason:
            return reason
        return f"nothing was read for {IDLE_S} s" if self.idle_s() > IDLE_S else None

    def idle_s(self) -> float:
        """Return the time since the last reader."""
        relays = [self._relay, *(self._state or ())[:1]]
        if any(tls_relay and tls_relay.has_readers for tls_relay in relays):
            self._last_s = time.monotonic()
        return time.monotonic() - self._last_s

    def _failure_reason(self) -> str | None:
        if self._server and not self._server.is_running:
            return f"the disks are no longer exported: {self._server.output()}"
        if time.monotonic() - self._checked_s < _POLL_S:
            return None
        self._checked_s = time.monotonic()
        with self._libvirt() as conn:
            dom = lookup.find(conn, self._request.guest)
            if self._server:
                # QEMU's locks do not protect block devices: libvirt gives each QEMU a
                # /dev of its own with other device files
                is_started = dom is not None and stopped.is_started(dom)
                return "the guest was started while its disks were read" if is_started else None
            if dom is None or not self._session or not running.is_served(dom, self._session):
                return "the guest was stopped, or libvirt ended its backup"
        return None

    def end(self) -> None:
        """End the export and remove its files. Raises VirtError."""
        if self._relay:
            self._relay.end()
        if self._state:
            for service in self._state:
                service.end()
        if self._server:
            self._server.end()
        self._locks.close()
        for path in request.runtime_files(self._request.guest)[1:]:  # and the state
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        deadline = time.monotonic() + _BACK_S
        while True:
            try:
                with self._libvirt() as conn:
                    return recover(conn, self._journal)
            except errors.ConnectionFailed:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)

    def undo(self) -> None:
        """End the export of a failed backup with its checkpoint, which at the latest the next good
        backup removes. Raises VirtError."""
        self.end()
        with contextlib.suppress(errors.VirtError):
            self.prune_checkpoints(EndRequest(self._request.backup_id, False))

    def prune_checkpoints(self, end_request: EndRequest) -> tuple[str, ...]:
        """Remove checkpoints: after a good backup those that are no longer needed, else the one of
        this backup. Return what could not be removed, and why."""
        with self._libvirt() as conn:
            dom = lookup.find(conn, self._request.guest)
            if dom is None:
                return ()
            needed = set(end_request.needed)
            if not end_request.good:
                existing = {checkpoint.getName() for checkpoint in dom.listAllCheckpoints(0)}
                needed = existing - {chains.checkpoint(self._request.backup_id)}
            return tuple(checkpoints.sweep(conn, dom, needed))


def recover(conn: libvirt.virConnect, journal: BackupJournal) -> None:
    """End what this process or a dead one has started. The caller holds the journal."""
    session = journal.read()
    if session is None:
        return
    dom = lookup.find(conn, session.guest)
    if dom is not None and dom.UUIDString() == session.uuid:
        if session.frozen:
            running.thaw(dom)
        if session.active:
            running.end(dom, session)
            # it was paused by a write for whose overwritten block there was no space
            if not session.paused and running.is_paused_by_io(dom):
                with contextlib.suppress(libvirt.libvirtError):
                    dom.resume()
    shutil.rmtree(session.scratch, ignore_errors=True)
    journal.write(None)


class ScratchSpace:
    """The space for blocks that guests overwrite during a backup. If it is full, QEMU fails writes
    of the guest.

    guest_folder: folder of this guest; max_mib: limit for its size; None: no limit.
    """

    def __init__(self, folder: str, guest_folder: str = "", max_mib: int | None = None) -> None:
        self._folder = self._base = folder
        self._guest_folder, self._max_mib = guest_folder, max_mib
        while not os.path.isdir(self._base):
            self._base = os.path.dirname(self._base)
        self._used_bytes = _used_bytes(folder)

    def check(self) -> None:
        """Raise OperationFailed if the free space may run out within some checks, at the rate of
        the guests' writes since the last one. Other writes to the file system, such as a disk that
        is allocated at once, do not count for the rate."""
        if self._max_mib and _used_bytes(self._guest_folder) > self._max_mib * _MIB:
            raise errors.OperationFailed(
                "the blocks that the guest overwrote during the backup take more than "
                f"{self._max_mib} MiB in {self._guest_folder} (virt:backup:scratch_mib): back "
                "the guest up when it writes less"
            )
        used_bytes = _used_bytes(self._folder)
        written_bytes = max(0, used_bytes - self._used_bytes)
        self._used_bytes = used_bytes
        usage = os.statvfs(self._base)
        needed = RESERVED_BYTES + _AHEAD * written_bytes
        if usage.f_bavail * usage.f_frsize < needed:
            raise errors.OperationFailed(
                f"{self._base} has less than {units.human_bytes(needed)} free for the blocks "
                "that the guest overwrites during the backup"
            )


def _used_bytes(folder: str) -> int:
    """Return the allocated size of all files in a folder."""
    total_bytes = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # another backup has ended
                total_bytes += os.lstat(os.path.join(parent, name)).st_blocks * _BLOCK
    return total_bytes


def main(_argv: list[str]) -> int:
    """The program. It reads a ServeRequest from standard input, and writes one line of JSON: the
    exports or an error."""
    serve_request = ServeRequest.from_answer(json.load(sys.stdin), "the request")
    try:
        with BackupJournal(serve_request.guest).lock() as journal, contextlib.ExitStack() as locked:
            locked.enter_context(
                guest_lock.acquire(serve_request.locks, "virt.backup", serve_request.guest)
            )
            server = ExportServer(serve_request, journal)
            signal.signal(signal.SIGTERM, lambda *_args: setattr(server, "signalled", True))
            with _listen(serve_request.guest) as listener:
                serving = server.begin()
                if not server.is_guest_off:
                    locked.close()
                try:
                    detached.send({"serving": serving.to_answer()})
                    _serve_until_end(server, serve_request, listener)
                except BrokenPipeError:  # the requester died
                    server.undo()
                    return 1
                except BaseException:
                    server.end()
                    raise
    except errors.VirtError as exc:
        detached.send({"error": exc.text})
        return 1
    except OSError as exc:
        location = f"{exc.filename}: " if exc.filename else ""
        detached.send(
            {
                "error": (
                    f"cannot export the disks of {serve_request.guest}: {location}{exc.strerror}"
                )
            }
        )
        return 1
    return 0


def _serve_until_end(
    server: ExportServer, serve_request: ServeRequest, listener: socket.socket
) -> None:
    """Serve requests until the export ends. Invalid requests are ignored."""
    is_ended = False
    while not is_ended:
        with contextlib.suppress(OSError), _accept(listener) as (end_request, answer):
            is_ended = (
                end_request.backup_id == serve_request.backup_id or server.idle_s() >= ABANDONED_S
            )
            answer(_end_session(server, serve_request, end_request) if is_ended else {
                "error": (
                    f"a backup of {serve_request.guest} is running on this host, "
                    f"{serve_request.backup_id}: wait until it is done"
                )
            })  # fmt: skip
        reason = None if is_ended else server.stop_reason()
        if reason:
            _write_end_reason(serve_request, reason)
            server.end()
            return


def _end_session(
    server: ExportServer, serve_request: ServeRequest, end_request: EndRequest
) -> dict[str, Any]:
    """End the export; return the answer for the requester."""
    try:
        server.end()
        # an abandoned backup may be complete at the target, so keep its checkpoint
        leftovers = (
            server.prune_checkpoints(end_request)
            if end_request.backup_id == serve_request.backup_id
            else ()
        )
        return ServingEnd(leftovers=leftovers).to_answer()
    except errors.VirtError as exc:
        return {"error": exc.text}


@contextlib.contextmanager
def _listen(guest: str) -> Iterator[socket.socket]:
    path = request.socket_path(guest)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(request.end_reason_path(guest))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(_CALLERS)
        listener.settimeout(_ACCEPT_S)
        try:
            yield listener
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


@contextlib.contextmanager
def _accept(listener: socket.socket) -> Iterator[tuple[EndRequest, Any]]:
    """Yield (request, function that sends the answer). Raises OSError if there is no valid
    request."""
    connected, _ = listener.accept()
    with connected, connected.makefile("rwb") as stream:
        connected.settimeout(_SAYS_S)
        try:
            end_request = EndRequest.from_answer(
                json.loads(stream.readline(_MAX_BYTES)), "the request"
            )
        except (ValueError, RecursionError, errors.BadAnswer) as exc:
            raise ConnectionAbortedError("the request is not valid") from exc

        def answer(data: dict[str, Any]) -> None:
            stream.write(json.dumps(data).encode() + b"\n")
            stream.flush()

        yield end_request, answer


def _write_end_reason(serve_request: ServeRequest, reason: str) -> None:
    """Store the reason for later requests. Errors do not matter."""
    with contextlib.suppress(OSError):
        path = request.end_reason_path(serve_request.guest)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"backup_id": serve_request.backup_id, "reason": reason}, file)
