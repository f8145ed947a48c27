"""The process that keeps a guest's disks served while its backup is read: a program of its own, so
that it outlives the job that began it, and ends what it began however the rest dies.

It ends it when it is told to, when nobody has read for a while, when the guest has overwritten so
much that the host's storage runs full, or when the guest is gone.
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

MODULE = "backup.export.export_server"
# so long nobody may be connected: the target's machine opens its connections disk by disk
IDLE_S = 120
# the same where another backup of the guest wants to begin: who began this one may have died
ABANDONED_S = 20
# what must stay free where the guest's old blocks are kept
RESERVED_BYTES = 256 * 1024**2
# who has something to say says it at once: nothing is looked after meanwhile
_POLL_S, _SAYS_S = 2, 10
# it is looked so often how much room there is; and so many looks ahead there has to be some
_ACCEPT_S, _AHEAD = 0.25, 8
# libvirt that is being restarted has so long to come back before what was begun is left to others
_BACK_S = 60
_MAX_BYTES = 1024**2
# of st_blocks
_BLOCK = 512
_MIB = 1024**2
# one more is told at once that he cannot call, as if nobody were there
_CALLERS = 16


class ExportServer:
    """One backup that is served. Hold its journal."""

    def __init__(self, serve_request: ServeRequest, journal: BackupJournal) -> None:
        self._request, self._journal = serve_request, journal
        self._server: daemon.StorageDaemon | None = None
        self._session: BackupSession | None = None
        self._relay: relay.Relay | None = None
        self._state: tuple[relay.Relay, daemon.StorageDaemon] | None = None
        self._last_s = time.monotonic()
        self._scratch = ScratchSpace(
            serve_request.scratch, running.scratch_folder(serve_request), serve_request.scratch_mib
        )
        self._checked_s = 0.0
        self.signalled = False

    @contextlib.contextmanager
    def _libvirt(self) -> Iterator[libvirt.virConnect]:
        """libvirt, which may have been restarted since it was last spoken to."""
        serve_request = self._request
        with connection.connect(
            settings.Connection(serve_request.uri, serve_request.username, serve_request.password)
        ) as conn:
            yield conn

    @property
    def is_guest_off(self) -> bool:
        """Whether the guest is not running, and must not be started."""
        return self._server is not None

    def begin(self) -> Serving:
        """Begins; what is served where. Raises VirtError, and then nothing is."""
        with self._libvirt() as conn:
            recover(conn, self._journal)
            dom = lookup.lookup(conn, self._request.guest)
            creation.require_complete(dom, "back up")
            self._scratch.check()
            self._session = BackupSession(
                self._request.guest, dom.UUIDString(), self._request.ident,
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
                consistency, note = record.CRASH, "its memory is saved, and in no backup"
            taken_at = record.format_time(time.time())
            disks, self._server = stopped.begin(conn, dom, inspection, self._request)
        exports_path = (
            running.exports_path(dom)
            if session.active
            else request.exports_path(self._request.guest)
        )
        self._relay = relay.begin(self._request.door, exports_path)
        is_encrypted = all(disk.sealed for disk in self._request.disks)
        state_files = guest_state.collect(conn, dom, is_encrypted)
        state_disk = self._show_state(state_files.files)
        return Serving(
            inspection.uuid, self._request.host, self._relay.port, consistency,
            definition.build(dom),
            tuple(disks), self._request.door.credentials.authority, note, taken_at,
            {**inspection.skipped, **definition.excluded_devices(dom), **state_files.skipped},
            state_disk, self._state[0].port if self._state else None,
        )  # fmt: skip

    def _show_state(self, files: dict[str, bytes]) -> ServedDisk | None:
        """Shows what the guest has beside its disks, on a port of its own: the QEMU of a guest that
        runs shows the disks alone."""
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
            self._state = relay.begin(self._request.door, inner), server
        except BaseException:
            server.end()
            raise
        about = record.STATE, len(data), "the guest's state", record.STATE
        return ServedDisk(*about, reason="it is always read whole")

    def stop_reason(self) -> str | None:
        """Why it cannot go on, None while it can."""
        if self.signalled:
            return "it was ended by a signal"
        try:
            if not self.is_guest_off:  # whether libvirt answers or not
                self._scratch.check()
            reason = self._failure_reason()
        except errors.ConnectionFailed:
            reason = None  # libvirt is being restarted; the guest's QEMU serves on
        except errors.VirtError as exc:
            reason = exc.text
        if reason:
            return reason
        return f"nobody has read for {IDLE_S} s" if self.idle_s() > IDLE_S else None

    def idle_s(self) -> float:
        """So long nobody has read."""
        relays = [self._relay, *(self._state or ())[:1]]
        if any(tls_relay and tls_relay.has_readers for tls_relay in relays):
            self._last_s = time.monotonic()
        return time.monotonic() - self._last_s

    def _failure_reason(self) -> str | None:
        if self._server and not self._server.is_running:
            return f"the disks are shown no more: {self._server.output()}"
        if time.monotonic() - self._checked_s < _POLL_S:
            return None
        self._checked_s = time.monotonic()
        with self._libvirt() as conn:
            dom = lookup.find(conn, self._request.guest)
            if self._server:
                # QEMU's locks do not keep it out of block devices: libvirt gives it a /dev of its
                # own, whose devices are other files
                is_started = dom is not None and dom.isActive()
                return "the guest was started while its disks were read" if is_started else None
            if dom is None or not self._session or not running.is_served(dom, self._session):
                return "the guest was stopped, or libvirt ended its backup"
        return None

    def end(self) -> None:
        """Nothing is served, and nothing of it is there any more. Raises VirtError."""
        if self._relay:
            self._relay.end()
        if self._state:
            for service in self._state:
                service.end()
        if self._server:
            self._server.end()
        for path in request.runtime_files(self._request.guest)[
            1:
        ]:  # what was killed, and the state
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
        """Ends what nobody has read; its checkpoint goes, too, at the latest with the next backup
        that is good. Raises VirtError."""
        self.end()
        with contextlib.suppress(errors.VirtError):
            self.prune_checkpoints(EndRequest(self._request.ident, False))

    def prune_checkpoints(self, end_request: EndRequest) -> tuple[str, ...]:
        """After a backup that is good, the checkpoints go that nothing needs any more; else the one
        that was made for it. What is left, and why."""
        with self._libvirt() as conn:
            dom = lookup.find(conn, self._request.guest)
            if dom is None:
                return ()
            needed = set(end_request.needed)
            if not end_request.good:
                existing = {checkpoint.getName() for checkpoint in dom.listAllCheckpoints(0)}
                needed = existing - {chains.checkpoint(self._request.ident)}
            return tuple(checkpoints.sweep(conn, dom, needed))


def recover(conn: libvirt.virConnect, journal: BackupJournal) -> None:
    """Ends what was begun, by this process or by one that died. Hold the journal."""
    session = journal.read()
    if session is None:
        return
    dom = lookup.find(conn, session.guest)
    if dom is not None and dom.UUIDString() == session.uuid:
        if session.frozen:
            running.thaw(dom)
        if session.active:
            running.end(dom, session)
            # a write for whose old block there was no room has paused it
            if not session.paused and running.is_paused_by_io(dom):
                with contextlib.suppress(libvirt.libvirtError):
                    dom.resume()
    shutil.rmtree(session.scratch, ignore_errors=True)
    journal.write(None)


class ScratchSpace:
    """The place of what guests overwrite during a backup. Where it is full, QEMU fails a write of
    the guest's. own: the folder of this guest; most_mib: so much may be in that, None: anything."""

    def __init__(self, folder: str, guest_folder: str = "", max_mib: int | None = None) -> None:
        self._folder = self._base = folder
        self._guest_folder, self._max_mib = guest_folder, max_mib
        while not os.path.isdir(self._base):
            self._base = os.path.dirname(self._base)
        self._used_bytes = _used_bytes(folder)

    def check(self) -> None:
        """Raises OperationFailed where there is too little room until the next looks, as fast as
        guests have overwritten since the last one. What else takes room there, such as a disk that
        is allocated at once, says nothing of that."""
        if self._max_mib and _used_bytes(self._guest_folder) > self._max_mib * _MIB:
            raise errors.OperationFailed(
                f"what the guest overwrote during its backup takes more than {self._max_mib} MiB "
                f"in {self._guest_folder} (virt:backup:scratch_mib): back it up when it writes less"
            )
        used_bytes = _used_bytes(self._folder)
        written_bytes = max(0, used_bytes - self._used_bytes)
        self._used_bytes = used_bytes
        usage = os.statvfs(self._base)
        needed = RESERVED_BYTES + _AHEAD * written_bytes
        if usage.f_bavail * usage.f_frsize < needed:
            raise errors.OperationFailed(
                f"{self._base} has less than {units.human_bytes(needed)} free: what the guest "
                "overwrites during a backup is kept there"
            )


def _used_bytes(folder: str) -> int:
    """So much is kept there."""
    total_bytes = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # another backup has ended
                total_bytes += os.lstat(os.path.join(parent, name)).st_blocks * _BLOCK
    return total_bytes


def main(_argv: list[str]) -> int:
    """The program: what is to be served on its standard input; one line of JSON on its standard
    output when it is, or why it is not."""
    serve_request = ServeRequest.from_answer(json.load(sys.stdin), "what is to be served")
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
                    _send({"serving": serving.to_answer()})
                    _serve_until_end(server, serve_request, listener)
                except BrokenPipeError:  # who began it died: nobody else knows where it is shown
                    server.undo()
                    return 1
                except BaseException:
                    server.end()
                    raise
    except errors.VirtError as exc:
        _send({"error": exc.text})
        return 1
    except OSError as exc:
        location = f"{exc.filename}: " if exc.filename else ""
        _send(
            {
                "error": (
                    f"the disks of {serve_request.guest} cannot be shown: {location}{exc.strerror}"
                )
            }
        )
        return 1
    return 0


def _serve_until_end(
    server: ExportServer, serve_request: ServeRequest, listener: socket.socket
) -> None:
    """Until it is told to end, or has to. Who says nothing, or goes away, ends nothing."""
    is_ended = False
    while not is_ended:
        with contextlib.suppress(OSError), _accept(listener) as (end_request, answer):
            is_ended = end_request.ident == serve_request.ident or server.idle_s() >= ABANDONED_S
            answer(_end_session(server, serve_request, end_request) if is_ended else {
                "error": (
                    f"a backup of {serve_request.guest} is under way here, {serve_request.ident}: "
                    f"wait for it"
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
    """Ends it; what is said of that."""
    try:
        server.end()
        # of one that was left its backup may be there, with its checkpoint
        leftovers = (
            server.prune_checkpoints(end_request)
            if end_request.ident == serve_request.ident
            else ()
        )
        return ServingEnd(left=leftovers).to_answer()
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
    """(what somebody wants, a function that answers). Raises OSError when nobody does, or he does
    not say it."""
    connected, _ = listener.accept()
    with connected, connected.makefile("rwb") as stream:
        connected.settimeout(_SAYS_S)
        try:
            end_request = EndRequest.from_answer(json.loads(stream.readline(_MAX_BYTES)), "the end")
        except (ValueError, RecursionError, errors.BadAnswer) as exc:
            raise ConnectionAbortedError("it went away, or is none of ours") from exc

        def answer(data: dict[str, Any]) -> None:
            stream.write(json.dumps(data).encode() + b"\n")
            stream.flush()

        yield end_request, answer


def _write_end_reason(serve_request: ServeRequest, reason: str) -> None:
    """For who asks later. It is no harm where it cannot be written."""
    with contextlib.suppress(OSError):
        path = request.end_reason_path(serve_request.guest)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"ident": serve_request.ident, "why": reason}, file)


def _send(data: dict[str, Any]) -> None:
    print(json.dumps(data), flush=True)
