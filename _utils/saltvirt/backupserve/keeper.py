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
from saltvirt.backuphost import daemon, relay
from saltvirt.backups import archive, chains, record
from saltvirt.backups.answers import ServedDisk, Serving, ServingEnded
from saltvirt.backupserve import checkpoints, definition, look, request, running, state, stopped
from saltvirt.backupserve.request import Begun, EndRequest, Journal, ServeRequest
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import creation, guest_lock, lookup

MODULE = "backupserve.keeper"
# so long nobody may be connected: the target's machine opens its connections disk by disk
IDLE_S = 120
# the same where another backup of the guest wants to begin: who began this one may have died
LEFT_S = 20
# what must stay free where the guest's old blocks are kept
ROOM_BYTES = 256 * 1024**2
# who has something to say says it at once: nothing is looked after meanwhile
_LOOK_S, _SAYS_S = 2, 10
# it is looked so often how much room there is; and so many looks ahead there has to be some
_ROOM_S, _AHEAD = 0.25, 8
# libvirt that is being restarted has so long to come back before what was begun is left to others
_BACK_S = 60
_MOST_BYTES = 1024**2
# of st_blocks
_BLOCK = 512
_MIB = 1024**2
# one more is told at once that he cannot call, as if nobody were there
_CALLERS = 16


class Keeper:
    """One backup that is served. Hold its journal."""

    def __init__(self, asked: ServeRequest, journal: Journal) -> None:
        self._asked, self._journal = asked, journal
        self._server: daemon.Server | None = None
        self._begun: Begun | None = None
        self._relay: relay.Relay | None = None
        self._state: tuple[relay.Relay, daemon.Server] | None = None
        self._last_s = time.monotonic()
        self._scratch = Scratch(asked.scratch, running.scratch(asked), asked.scratch_mib)
        self._looked_s = 0.0
        self.signalled = False

    @contextlib.contextmanager
    def _libvirt(self) -> Iterator[libvirt.virConnect]:
        """libvirt, which may have been restarted since it was last spoken to."""
        asked = self._asked
        with connection.connect(
            settings.Connection(asked.uri, asked.username, asked.password)
        ) as conn:
            yield conn

    @property
    def is_off(self) -> bool:
        """Whether the guest is not running, and must not be started."""
        return self._server is not None

    def begin(self) -> Serving:
        """Begins; what is served where. Raises VirtError, and then nothing is."""
        with self._libvirt() as conn:
            recover(conn, self._journal)
            dom = lookup.lookup(conn, self._asked.guest)
            creation.require_complete(dom, "back up")
            self._scratch.check()
            self._begun = Begun(
                self._asked.guest, dom.UUIDString(), self._asked.ident,
                running.scratch(self._asked), bool(dom.isActive()),
                paused=running.is_paused_by_io(dom),
            )  # fmt: skip
            self._journal.write(self._begun)
            try:
                return self._serve(conn, dom, self._begun)
            except BaseException:
                self.undo()
                raise

    def _serve(self, conn: libvirt.virConnect, dom: libvirt.virDomain, begun: Begun) -> Serving:
        found, note = look.look(conn, self._asked.guest), None
        if begun.active:
            running.make_scratch(begun.scratch)
            disks, consistency, note, when = running.begin(
                dom, found, self._asked,
                lambda frozen: self._journal.write(replace(begun, frozen=frozen)),
            )  # fmt: skip
        else:
            consistency = record.STOPPED
            if dom.hasManagedSaveImage():
                consistency, note = record.CRASH, "its memory is saved, and in no backup"
            when = record.written_at(time.time())
            disks, self._server = stopped.begin(conn, dom, found, self._asked)
        where = running.exports_of(dom) if begun.active else request.exports_of(self._asked.guest)
        self._relay = relay.begin(self._asked.door, where)
        sealed = all(one.sealed for one in self._asked.disks)
        more = state.taken(conn, dom, sealed)
        beside = self._show_state(more.files)
        return Serving(
            found.uuid, self._asked.host, self._relay.port, consistency, definition.of(dom),
            tuple(disks), self._asked.door.credentials.authority, note, when,
            {**found.skipped, **definition.beside(dom), **more.skipped},
            beside, self._state[0].port if self._state else None,
        )  # fmt: skip

    def _show_state(self, files: dict[str, bytes]) -> ServedDisk | None:
        """Shows what the guest has beside its disks, on a port of its own: the QEMU of a guest that
        runs shows the disks alone."""
        if not files:
            return None
        guest, data = self._asked.guest, archive.packed(files)
        path, inner = request.state_of(guest), request.state_exports_of(guest)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, how, 0o600), "wb") as file:
            file.write(data)
        server = daemon.begin([daemon.Shown(path, record.RAW, record.STATE)], inner)
        try:
            self._state = relay.begin(self._asked.door, inner), server
        except BaseException:
            server.end()
            raise
        about = record.STATE, len(data), "the guest's state", record.STATE
        return ServedDisk(*about, reason="it is always read whole")

    def why_over(self) -> str | None:
        """Why it cannot go on, None while it can."""
        if self.signalled:
            return "it was ended by a signal"
        try:
            if not self.is_off:  # whether libvirt answers or not
                self._scratch.check()
            why = self._why_not_served()
        except errors.ConnectionFailed:
            why = None  # libvirt is being restarted; the guest's QEMU serves on
        except errors.VirtError as exc:
            why = exc.text
        if why:
            return why
        return f"nobody has read for {IDLE_S} s" if self.quiet_s() > IDLE_S else None

    def quiet_s(self) -> float:
        """So long nobody has read."""
        relays = [self._relay, *(self._state or ())[:1]]
        if any(one and one.is_read for one in relays):
            self._last_s = time.monotonic()
        return time.monotonic() - self._last_s

    def _why_not_served(self) -> str | None:
        if self._server and not self._server.lives:
            return f"the disks are shown no more: {self._server.words()}"
        if time.monotonic() - self._looked_s < _LOOK_S:
            return None
        self._looked_s = time.monotonic()
        with self._libvirt() as conn:
            dom = lookup.find(conn, self._asked.guest)
            if self._server:
                # QEMU's locks do not keep it out of block devices: libvirt gives it a /dev of its
                # own, whose devices are other files
                is_started = dom is not None and dom.isActive()
                return "the guest was started while its disks were read" if is_started else None
            if dom is None or not self._begun or not running.is_served(dom, self._begun):
                return "the guest was stopped, or libvirt ended its backup"
        return None

    def end(self) -> None:
        """Nothing is served, and nothing of it is there any more. Raises VirtError."""
        if self._relay:
            self._relay.end()
        if self._state:
            for one in self._state:
                one.end()
        if self._server:
            self._server.end()
        for path in request.traces_of(self._asked.guest)[1:]:  # what was killed, and the state
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        until = time.monotonic() + _BACK_S
        while True:
            try:
                with self._libvirt() as conn:
                    return recover(conn, self._journal)
            except errors.ConnectionFailed:
                if time.monotonic() > until:
                    raise
            time.sleep(_LOOK_S)

    def undo(self) -> None:
        """Ends what nobody has read; its checkpoint goes, too, at the latest with the next backup
        that is good. Raises VirtError."""
        self.end()
        with contextlib.suppress(errors.VirtError):
            self.settle(EndRequest(self._asked.ident, False))

    def settle(self, told: EndRequest) -> tuple[str, ...]:
        """After a backup that is good, the checkpoints go that nothing needs any more; else the one
        that was made for it. What is left, and why."""
        with self._libvirt() as conn:
            dom = lookup.find(conn, self._asked.guest)
            if dom is None:
                return ()
            needed = set(told.needed)
            if not told.good:
                there = {one.getName() for one in dom.listAllCheckpoints(0)}
                needed = there - {chains.checkpoint(self._asked.ident)}
            return tuple(checkpoints.sweep(conn, dom, needed))


def recover(conn: libvirt.virConnect, journal: Journal) -> None:
    """Ends what was begun, by this process or by one that died. Hold the journal."""
    begun = journal.read()
    if begun is None:
        return
    dom = lookup.find(conn, begun.guest)
    if dom is not None and dom.UUIDString() == begun.uuid:
        if begun.frozen:
            running.thaw(dom)
        if begun.active:
            running.end(dom, begun)
            # a write for whose old block there was no room has paused it
            if not begun.paused and running.is_paused_by_io(dom):
                with contextlib.suppress(libvirt.libvirtError):
                    dom.resume()
    shutil.rmtree(begun.scratch, ignore_errors=True)
    journal.write(None)


class Scratch:
    """The place of what guests overwrite during a backup. Where it is full, QEMU fails a write of
    the guest's. own: the folder of this guest; most_mib: so much may be in that, None: anything."""

    def __init__(self, folder: str, own: str = "", most_mib: int | None = None) -> None:
        self._folder = self._place = folder
        self._own, self._most_mib = own, most_mib
        while not os.path.isdir(self._place):
            self._place = os.path.dirname(self._place)
        self._stored = _stored(folder)

    def check(self) -> None:
        """Raises OperationFailed where there is too little room until the next looks, as fast as
        guests have overwritten since the last one. What else takes room there, such as a disk that
        is allocated at once, says nothing of that."""
        if self._most_mib and _stored(self._own) > self._most_mib * _MIB:
            raise errors.OperationFailed(
                f"what the guest overwrote during its backup takes more than {self._most_mib} MiB "
                f"in {self._own} (virt:backup:scratch_mib): back it up when it writes less"
            )
        stored = _stored(self._folder)
        filled = max(0, stored - self._stored)
        self._stored = stored
        found = os.statvfs(self._place)
        needed = ROOM_BYTES + _AHEAD * filled
        if found.f_bavail * found.f_frsize < needed:
            raise errors.OperationFailed(
                f"{self._place} has less than {units.human_bytes(needed)} free: what the guest "
                "overwrites during a backup is kept there"
            )


def _stored(folder: str) -> int:
    """So much is kept there."""
    found = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # another backup has ended
                found += os.lstat(os.path.join(parent, name)).st_blocks * _BLOCK
    return found


def main(_words: list[str]) -> int:
    """The program: what is to be served on its standard input; one line of JSON on its standard
    output when it is, or why it is not."""
    asked = ServeRequest.from_answer(json.load(sys.stdin), "what is to be served")
    try:
        with Journal(asked.guest).held() as journal, contextlib.ExitStack() as locked:
            locked.enter_context(guest_lock.held(asked.locks, "virt.backup", asked.guest))
            keeper = Keeper(asked, journal)
            signal.signal(signal.SIGTERM, lambda *_args: setattr(keeper, "signalled", True))
            with _listening(asked.guest) as listener:
                serving = keeper.begin()
                if not keeper.is_off:
                    locked.close()
                try:
                    _say({"serving": serving.to_answer()})
                    _keep(keeper, asked, listener)
                except BrokenPipeError:  # who began it died: nobody else knows where it is shown
                    keeper.undo()
                    return 1
                except BaseException:
                    keeper.end()
                    raise
    except errors.VirtError as exc:
        _say({"error": exc.text})
        return 1
    except OSError as exc:
        where = f"{exc.filename}: " if exc.filename else ""
        _say({"error": f"the disks of {asked.guest} cannot be shown: {where}{exc.strerror}"})
        return 1
    return 0


def _keep(keeper: Keeper, asked: ServeRequest, listener: socket.socket) -> None:
    """Until it is told to end, or has to. Who says nothing, or goes away, ends nothing."""
    is_told = False
    while not is_told:
        with contextlib.suppress(OSError), _accepted(listener) as (told, answer):
            is_told = told.ident == asked.ident or keeper.quiet_s() >= LEFT_S
            answer(_ended(keeper, asked, told) if is_told else {
                "error": f"a backup of {asked.guest} is under way here, {asked.ident}: wait for it"
            })  # fmt: skip
        why = None if is_told else keeper.why_over()
        if why:
            _write_end(asked, why)
            keeper.end()
            return


def _ended(keeper: Keeper, asked: ServeRequest, told: EndRequest) -> dict[str, Any]:
    """Ends it; what is said of that."""
    try:
        keeper.end()
        # of one that was left its backup may be there, with its checkpoint
        left = keeper.settle(told) if told.ident == asked.ident else ()
        return ServingEnded(left=left).to_answer()
    except errors.VirtError as exc:
        return {"error": exc.text}


@contextlib.contextmanager
def _listening(guest: str) -> Iterator[socket.socket]:
    path = request.socket_of(guest)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(request.ended_of(guest))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(_CALLERS)
        listener.settimeout(_ROOM_S)
        try:
            yield listener
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


@contextlib.contextmanager
def _accepted(listener: socket.socket) -> Iterator[tuple[EndRequest, Any]]:
    """(what somebody wants, a function that answers). Raises OSError when nobody does, or he does
    not say it."""
    connected, _ = listener.accept()
    with connected, connected.makefile("rwb") as stream:
        connected.settimeout(_SAYS_S)
        try:
            told = EndRequest.from_answer(json.loads(stream.readline(_MOST_BYTES)), "the end")
        except (ValueError, RecursionError, errors.BadAnswer) as exc:
            raise ConnectionAbortedError("it went away, or is none of ours") from exc

        def answer(data: dict[str, Any]) -> None:
            stream.write(json.dumps(data).encode() + b"\n")
            stream.flush()

        yield told, answer


def _write_end(asked: ServeRequest, why: str) -> None:
    """For who asks later. It is no harm where it cannot be written."""
    with contextlib.suppress(OSError):
        path = request.ended_of(asked.guest)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"ident": asked.ident, "why": why}, file)


def _say(data: dict[str, Any]) -> None:
    print(json.dumps(data), flush=True)
