"""libvirt: what it has, seen again and again on a thread of its own, and what is done with guests,
each act on its own thread. A libvirt that hangs keeps neither the watchdog nor a beat waiting."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from saltvirt import errors
from saltvirt.ha.facts import ALIVE, FAILED, OFF, STARTING
from saltvirt.haagent import definitions
from saltvirt.haagent.copies import PAUSED, Copies, Copy, Seen, Snapshot
from saltvirt.haagent.definitions import Definition, Definitions
from saltvirt.haagent.health import Health
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import guest_lock
from saltvirt.host.migration import departed

log = logging.getLogger(__name__)

_ALIVE_EVERY_S, _ALIVE_TIMES = 5, 5
_LOCK_WAIT_S = 5
# a server of storage keeps the locks of a host that is cut off: NFS 4 for 90 s, GlusterFS for 42 s
_DISK_WAIT_S, _DISK_AGAIN_S = 100, 1
_LEASE_AGAIN_S = 5
PRESS_AGAIN_S = 10
_DEFINITIONS_EVERY_S = 10
# virDomainState: running, blocked, paused, in shutdown, suspended; shut off, crashed, which may be
# kept as it was, alive
_ACTIVE, _SHUT_OFF, _CRASHED = (1, 2, PAUSED, 4, 7), 5, 6
# virDomainPausedReason of one that waits for a migration; virDomainShutoffReason of a crash
_COMING, _OFF_CRASHED = (2, 11), 3


@dataclass(frozen=True)
class Where:
    """uri: libvirt's. locks: the folder of the guests' locks. patience_s: a guest that is asked to
    shut down is powered off after that. beat_s: between two looks. saved: the folder where libvirt
    has its definitions; nothing: that is not known."""

    uri: str
    locks: str
    patience_s: float
    beat_s: float = 1
    saved: str = ""


class Guests:
    """The guests of this host's libvirt. kept: definitions that masters told. clock: of this
    boot. window_s: as Health has it."""

    def __init__(
        self,
        where: Where,
        copies: Copies,
        kept: Definitions,
        clock: Callable[[], float],
        window_s: float = 120,
    ) -> None:
        connection.require_binding()
        self.where, self.copies, self.kept, self._clock = where, copies, kept, clock
        self.health = Health(self, clock, window_s)
        self.names: frozenset[str] = frozenset()
        # those of them that nobody but the manager starts
        self.managed: frozenset[str] = frozenset()
        # those that are this host's in this boot
        self.own: frozenset[str] = frozenset()
        self.on_definition: Callable[[Definition], None] = lambda found: None
        self._told: dict[str, str] = {}
        self._told_s = 0.0
        self._saw: dict[str, tuple[int, ...]] = {}
        self._conn: libvirt.virConnect | None = None
        self._events: list[int] = []
        self._busy: set[tuple[str, str]] = set()
        self._asked: dict[str, float] = {}
        self._unwanted: set[str] = set()
        # those whose definition here is to go, and has not gone yet
        self._old: set[str] = set()
        self._guard = threading.Lock()
        self._wake, self._ends = threading.Event(), False
        self._said = ""

    def begin(self) -> None:
        """Looks from now on, on a thread of its own."""
        connection.keep_events_running()
        threading.Thread(target=self._watch, name="libvirt", daemon=True).start()

    def end(self) -> None:
        """It looks no more."""
        self._ends = True
        self._wake.set()

    # what it sees

    def _watch(self) -> None:
        while not self._ends:
            try:
                self._look(self._connected())
                self._say("libvirt answers")
            except (libvirt.libvirtError, errors.VirtError, OSError) as exc:
                self._say(f"libvirt: {exc}")
                self._close()
            except Exception as exc:  # an agent that looks no more knows nothing
                log.exception("a look at libvirt failed: %s", exc)
            self._wake.wait(self.where.beat_s)
            self._wake.clear()
        self._close()

    def _connected(self) -> libvirt.virConnect:
        if self._conn is None:
            conn = libvirt.open(self.where.uri)
            with contextlib.suppress(libvirt.libvirtError):  # the test driver has none
                conn.setKeepAlive(_ALIVE_EVERY_S, _ALIVE_TIMES)
            self._listen(conn)
            self._conn = conn
        return self._conn

    def _listen(self, conn: libvirt.virConnect) -> None:
        """Events of which libvirt's states say nothing afterwards."""
        told: dict[int, Callable[..., None]] = {
            libvirt.VIR_DOMAIN_EVENT_ID_WATCHDOG: self._fired,
            libvirt.VIR_DOMAIN_EVENT_ID_REBOOT: self._rebooted,
        }
        for event, function in told.items():
            with contextlib.suppress(libvirt.libvirtError):  # a driver without it
                self._events.append(conn.domainEventRegisterAny(None, event, function, None))

    def _ignore(self) -> None:
        """A connection whose events are listened to does not end."""
        events, self._events = self._events, []
        for event in events:
            with contextlib.suppress(libvirt.libvirtError):
                if self._conn is not None:
                    self._conn.domainEventDeregisterAny(event)

    def _fired(
        self, _conn: libvirt.virConnect, dom: libvirt.virDomain, action: int, _: object
    ) -> None:
        if dom.name() in self.names:
            log.warning("the watchdog of %s fired: action %s", dom.name(), action)
            self.health.fired(dom.name(), action)

    def _rebooted(self, _conn: libvirt.virConnect, dom: libvirt.virDomain, _: object) -> None:
        if dom.name() in self.names:
            self.health.rebooted(dom.name())

    def _close(self) -> None:
        self._ignore()
        conn, self._conn = self._conn, None
        with contextlib.suppress(libvirt.libvirtError):
            if conn is not None:
                conn.close()

    def _look(self, conn: libvirt.virConnect) -> None:
        at_s = self._clock()
        domains = {one.name: one for one in map(seen, conn.getAllDomainStats(1))}
        names = self.names
        self.copies.look(Snapshot(at_s, domains), names, self._clock())
        self.health.look(domains, names)
        self._old.difference_update([name for name, one in domains.items() if one.active])
        for name in [name for name in self._asked if not self._is_alive(name)]:
            del self._asked[name]
        self._refuse_autostart(conn)
        here = [name for name in names if name in domains]
        # of one that is given again nobody may know the definition any more
        self._told = {name: told for name, told in self._told.items() if name in names}
        if self._clock() - self._told_s >= _DEFINITIONS_EVERY_S:
            self._told_s = self._clock()
            self._tell_definitions(conn, here)
        else:  # one that was just given, or got a disk or a snapshot: its host may die now
            saved = {name: self._saved(name) for name in here}
            new = [name for name in here if name not in self._told]
            new += [name for name in here if saved[name] != self._saw.get(name)]
            self._tell_definitions(conn, dict.fromkeys(new))
            self._saw = saved

    def _saved(self, name: str) -> tuple[int, ...]:
        """What changes when libvirt saves the definition: it tells no event of each change."""
        try:
            found = os.stat(f"{self.where.saved}/{name}.xml") if self.where.saved else None
        except OSError:
            return ()
        return (found.st_ino, found.st_mtime_ns, found.st_size) if found else ()

    def _refuse_autostart(self, conn: libvirt.virConnect) -> None:
        """A host that comes back starts nothing by itself: it may run elsewhere by then."""
        for dom in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART):
            name = dom.name()
            if name in self.managed:
                with contextlib.suppress(libvirt.libvirtError):  # it went meanwhile
                    dom.setAutostart(0)
                    log.warning(
                        "%s was to start with its host: it is kept by high availability, which "
                        "alone starts it", name,
                    )  # fmt: skip

    def _is_alive(self, name: str) -> bool:
        copy = self.copies.get(name)
        return copy is not None and copy.state in ALIVE

    def _tell_definitions(self, conn: libvirt.virConnect, names: Collection[str]) -> None:
        for name in names:
            try:
                dom = conn.lookupByName(name)
                flags = libvirt.VIR_DOMAIN_XML_SECURE
                flags |= libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_MIGRATABLE
                found = definitions.parse(name, dom.XMLDesc(flags))
            except (libvirt.libvirtError, errors.VirtError) as exc:
                log.warning("the definition of %s cannot be read: %s", name, exc)
                self._told.setdefault(name, "")
                continue
            if self._told.get(name) != found.digest or self._is_missed(found):
                self._told[name] = found.digest
                self.on_definition(found)

    def _is_missed(self, found: Definition) -> bool:
        """It is this host's guest, and masters, who tell all hosts what they know, have not told
        this: they refused it while the guest was another's, say."""
        kept = self.kept.get(found.name)
        return found.name in self.own and (kept is None or kept.digest != found.digest)

    def tell_again(self) -> None:
        """All definitions are told once more: somebody has come who may know none."""
        self._told = {}
        self._told_s = 0.0

    def _say(self, text: str) -> None:
        if text != self._said:
            log.info("%s", text)
        self._said = text

    # what is done

    def start(self, name: str, epoch: int) -> None:
        """A guest of this host's own, with that epoch."""
        before = self.copies.get(name)
        uuid = before.uuid if before else ""
        self._unwanted.discard(name)
        self.health.began(name)
        lease, unsure = (before.lease, before.lease_unsure) if before else (0, False)
        starting = Copy(epoch, STARTING, uuid, 0, self._clock(), True, lease, unsure)
        begun = False
        try:
            self.copies.put(name, starting)
            begun = self._begin("start", name, self._start, epoch)
        finally:
            if not begun:
                self.copies.change(name, self._clock(), busy=False)

    def lease(self, name: str, version: int) -> None:
        """The lock of its disks, which the storage gives to one host alone, for that question: it
        is started, and held before its first instruction."""
        before = self.copies.get(name) or Copy(0, OFF)
        if before.busy or before.state in ALIVE:
            return
        if self._begin("lease", name, self._lease, version):
            self._unwanted.discard(name)

    def adopt(self, name: str, epoch: int) -> None:
        """It runs here already: that is its epoch now."""
        copy = self.copies.get(name)
        if copy is not None:
            self.copies.change(name, copy.since_s, epoch=epoch)

    def kill(self, name: str) -> None:
        """Its power is taken."""
        self._unwanted.add(name)
        self._begin("kill", name, self._kill)

    def leave(self, name: str) -> None:
        """It is a person's from now on. A start of it that waits for a disk ends."""
        self._unwanted.add(name)

    def shut_down(self, name: str) -> None:
        """It is asked to shut down, again and again; in the end its power is taken."""
        self._unwanted.add(name)
        now_s = self._clock()
        since_s = self._asked.setdefault(name, now_s)
        if now_s - since_s >= self.where.patience_s:
            self.kill(name)
        else:
            self._begin("stop", name, self._press)

    def drop(self, name: str) -> None:
        """Its definition goes, its disks and its variables stay. It is not started by it."""
        self._old.add(name)
        self._begin("drop", name, self._drop)

    def do(self, kind: str, name: str, work: Callable[..., None], *words: object) -> bool:
        """Something else with a guest, on a thread of its own."""
        return self._begin(kind, name, work, *words)

    def domain(self, name: str) -> libvirt.virDomain | None:
        """libvirt's, None where it has none of the name. Raises libvirtError, ConnectionFailed."""
        conn = self._conn
        if conn is None:
            raise errors.ConnectionFailed("libvirt does not answer")
        try:
            return conn.lookupByName(name)
        except libvirt.libvirtError as exc:
            if exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                return None
            raise

    def _begin(self, kind: str, name: str, work: Callable[..., None], *words: object) -> bool:
        """On a thread of its own, unless the same is at work, or no thread can be had."""
        with self._guard:
            if (kind, name) in self._busy:
                return False
            self._busy.add((kind, name))
        args = (kind, name, work, words)
        try:
            threading.Thread(
                target=self._work, args=args, name=f"{kind} {name}", daemon=True
            ).start()
        except RuntimeError as exc:
            log.error("cannot %s %s: %s", kind, name, exc)
            with self._guard:
                self._busy.discard((kind, name))
            return False
        return True

    def _work(
        self, kind: str, name: str, work: Callable[..., None], words: tuple[object, ...]
    ) -> None:
        try:
            work(name, *words)
        except (libvirt.libvirtError, errors.VirtError, OSError) as exc:
            log.error("cannot %s %s: %s", kind, name, exc)
        finally:
            with self._guard:
                self._busy.discard((kind, name))
            self._wake.set()

    def _start(self, name: str, epoch: int) -> None:
        """Failed is only what libvirt itself says has failed: else it may run still, later."""
        clear = False
        try:
            with guest_lock.held(self.where.locks, "ha: start", name, wait_s=_LOCK_WAIT_S):
                dom = self._defined(name)
                with contextlib.suppress(libvirt.libvirtError):  # a driver without it
                    dom.setAutostart(0)
                self._create(name, dom)
            clear = True
            log.info("guest %s runs, epoch %s", name, epoch)
        except (errors.VirtError, OSError) as exc:
            clear = True
            self.health.failed(name, exc)
            raise
        except libvirt.libvirtError as exc:
            self.health.failed(name, exc)
            clear = self._conn is not None and bool(self._conn.isAlive())
            raise
        finally:
            copy = self.copies.get(name)
            if copy is not None and copy.epoch == epoch and copy.busy:
                failed = clear and not self._runs(name)
                fields: dict[str, Any] = {"state": FAILED} if failed else {}
                self.copies.change(name, self._clock(), busy=False, **fields)

    def _lease(self, name: str, version: int) -> None:
        """It is got when libvirt has started it: QEMU takes the locks of its disks before that."""
        before = self.copies.get(name) or Copy(0, OFF)
        now_s = self._clock()
        got = False
        asked = replace(before, since_s=now_s, busy=True, lease=version, lease_unsure=True)
        try:
            self.copies.put(name, asked)
            with guest_lock.held(self.where.locks, "ha: lease", name, wait_s=_LOCK_WAIT_S):
                dom = self._defined(name)
                with contextlib.suppress(libvirt.libvirtError):  # a driver without it
                    dom.setAutostart(0)
                self._hold(dom, before)
            got = True
            log.info("guest %s is held: the lock of its disks was got", name)
        except libvirt.libvirtError as exc:
            if not _is_locked(exc):
                raise
            log.info("guest %s: its disks are locked still", name)
        finally:
            self.copies.change(name, self._clock(), busy=False, lease_unsure=not got)
            if not got:
                time.sleep(_LEASE_AGAIN_S)

    def _hold(self, dom: libvirt.virDomain, before: Copy) -> None:
        """before: what is known of it."""
        if dom.isActive():
            if not before.lease or dom.state()[0] != PAUSED:
                raise errors.OperationFailed("it runs")
            if before.has_lease:
                return
            dom.destroy()
        dom.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)

    def _create(self, name: str, dom: libvirt.virDomain) -> None:
        """Tried again while the lock of a disk is held: it may be the one of its dead host. One
        that is held here goes on."""
        copy = self.copies.get(name)
        if copy is not None and copy.lease and dom.isActive():
            if copy.has_lease:
                dom.resume()
                return
            if dom.state()[0] == PAUSED:
                dom.destroy()
        end_s, said = self._clock() + _DISK_WAIT_S, False
        while not dom.isActive():
            try:
                dom.create()
                return
            except libvirt.libvirtError as exc:
                if not _is_locked(exc) or name in self._unwanted or self._clock() >= end_s:
                    raise
                if not said:
                    log.warning("%s waits: its disk is locked still: %s", name, exc)
                said = True
            time.sleep(_DISK_AGAIN_S)
            if name in self._unwanted:
                raise errors.OperationFailed("its disk is locked, and it is no longer to start")

    def _runs(self, name: str) -> bool:
        """Whether libvirt shows it active; where it says nothing, it may be."""
        try:
            dom = self.domain(name)
            return dom is not None and bool(dom.isActive())
        except (libvirt.libvirtError, errors.VirtError):
            return True

    def _defined(self, name: str) -> libvirt.virDomain:
        dom = self.domain(name)
        if dom is not None and name in self._old and not dom.isActive():
            self._dropped(name)
            dom = None
        if dom is not None:
            return dom
        kept = self.kept.get(name)
        if kept is None or self._conn is None:
            raise errors.NotFound(f"no definition of {name} is known here")
        return self._conn.defineXML(kept.xml)

    def _kill(self, name: str) -> None:
        dom = self.domain(name)
        if dom is not None and dom.isActive():
            dom.destroy()

    def _press(self, name: str) -> None:
        dom = self.domain(name)
        if dom is not None and dom.isActive():
            if dom.state()[0] == _CRASHED:  # nothing in it can shut it down
                dom.destroy()
                return
            dom.shutdown()
            end_s = time.monotonic() + PRESS_AGAIN_S
            while time.monotonic() < end_s and dom.isActive():
                time.sleep(0.5)

    def _drop(self, name: str) -> None:
        with guest_lock.held(self.where.locks, "ha: drop", name, wait_s=_LOCK_WAIT_S):
            self._dropped(name)
        self.copies.drop(name)

    def _dropped(self, name: str) -> None:
        dom = self.domain(name)
        if dom is not None:
            copy = self.copies.get(name)
            if dom.isActive() and copy is not None and copy.lease and dom.state()[0] == PAUSED:
                dom.destroy()  # it was held for a lease that nobody asks for any more
            if dom.isActive():
                raise errors.OperationFailed("it runs")
            _undefine(dom)
            departed.note(name, "another host by high availability")
        self._old.discard(name)


def _is_locked(exc: libvirt.libvirtError) -> bool:
    """By QEMU's words, or virtlockd's."""
    return exc.get_error_code() == libvirt.VIR_ERR_RESOURCE_BUSY or bool(
        re.search('Failed to get .*"(write|consistent read|shared .*)" lock', str(exc))
    )


def _undefine(dom: libvirt.virDomain) -> None:
    """An older libvirt does not know the last flag, another driver none."""
    basic = _flags("MANAGED_SAVE", "SNAPSHOTS_METADATA")
    keep = basic | _flags("KEEP_NVRAM")
    tpm = keep | _flags("KEEP_TPM")
    checkpoints = tpm | _flags("CHECKPOINTS_METADATA")
    unknown = (libvirt.VIR_ERR_INVALID_ARG, libvirt.VIR_ERR_NO_SUPPORT)
    for flags in (checkpoints, tpm, keep, basic, 0):
        try:
            dom.undefineFlags(flags)
            return
        except libvirt.libvirtError as exc:
            if exc.get_error_code() not in unknown or not flags:
                raise


def _flags(*names: str) -> int:
    return sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{name}", 0) for name in names)


def seen(told: tuple[libvirt.virDomain, dict[str, Any]]) -> Seen:
    """What a row of libvirt's statistics says of a domain."""
    dom, stats = told
    state, reason = stats.get("state.state", 0), stats.get("state.reason", 0)
    return Seen(
        dom.name(),
        dom.UUIDString(),
        active=state in _ACTIVE or (state == _CRASHED and dom.ID() >= 0),
        incoming=state == PAUSED and reason in _COMING,
        crashed=state == _CRASHED or (state == _SHUT_OFF and reason == _OFF_CRASHED),
        state=state,
        reason=reason,
        number=dom.ID(),
    )
