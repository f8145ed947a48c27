"""Poll libvirt on a thread of its own, and run each action on a guest on another thread. If libvirt
hangs, neither the watchdog nor the heartbeat waits for it."""

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
from saltvirt.ha.agent import definitions
from saltvirt.ha.agent.definitions import DefinitionCache, GuestDefinition
from saltvirt.ha.agent.health import Health
from saltvirt.ha.agent.instances import PAUSED, DomainListing, DomainState, Instance, InstanceTable
from saltvirt.ha.model.messages import ALIVE, FAILED, OFF, STARTING
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import guest_lock
from saltvirt.host.migration import departures

log = logging.getLogger(__name__)

_ALIVE_EVERY_S, _ALIVE_TIMES = 5, 5
_LOCK_WAIT_S = 5
# storage keeps the locks of a host that is cut off: NFS 4 for 90 s, GlusterFS for 42 s
_DISK_WAIT_S, _DISK_RETRY_S = 100, 1
_LEASE_RETRY_S = 5
SHUTDOWN_RETRY_S = 10
_DEFINITIONS_EVERY_S = 10
# virDomainState: running, blocked, paused, in shutdown, suspended; shut off; crashed, which may be
# preserved and alive
_ACTIVE, _SHUT_OFF, _CRASHED = (1, 2, PAUSED, 4, 7), 5, 6
# virDomainPausedReason of an incoming migration; virDomainShutoffReason of a crash
_INCOMING_REASONS, _OFF_CRASHED = (2, 11), 3


@dataclass(frozen=True)
class LibvirtConfig:
    """uri: of libvirt. locks: the folder of the guests' locks. shutdown_wait_s: the time after
    which a guest that does not shut down is powered off. beat_s: the polling interval.
    definitions_folder: where libvirt stores definitions; empty: unknown."""

    uri: str
    locks: str
    shutdown_wait_s: float
    beat_s: float = 1
    definitions_folder: str = ""


class Guests:
    """The guests of this host's libvirt. definition_cache: definitions from the masters. clock: of
    this boot. window_s: see Health."""

    def __init__(
        self,
        config: LibvirtConfig,
        instances: InstanceTable,
        definition_cache: DefinitionCache,
        clock: Callable[[], float],
        window_s: float = 120,
    ) -> None:
        connection.require_binding()
        self.config, self.instances, self.definition_cache, self._clock = (
            config,
            instances,
            definition_cache,
            clock,
        )
        self.health = Health(self, clock, window_s)
        self.names: frozenset[str] = frozenset()
        # those that only HA may start
        self.managed: frozenset[str] = frozenset()
        # those that belong to this host in this boot
        self.owned: frozenset[str] = frozenset()
        self.on_definition: Callable[[GuestDefinition], None] = lambda definition: None
        self._sent_digests: dict[str, str] = {}
        self._sent_s = 0.0
        self._file_stamps: dict[str, tuple[int, ...]] = {}
        self._conn: libvirt.virConnect | None = None
        self._events: list[int] = []
        self._busy: set[tuple[str, str]] = set()
        self._shutdown_since: dict[str, float] = {}
        self._unwanted: set[str] = set()
        # those whose definition on this host is obsolete and not removed yet
        self._obsolete: set[str] = set()
        self._guard = threading.Lock()
        self._wake, self._stopping = threading.Event(), False
        self._last_message = ""

    def begin(self) -> None:
        """Start to poll, on a thread of its own."""
        connection.keep_events_running()
        threading.Thread(target=self._watch, name="libvirt", daemon=True).start()

    def end(self) -> None:
        """Stop polling."""
        self._stopping = True
        self._wake.set()

    # polling

    def _watch(self) -> None:
        while not self._stopping:
            try:
                self._poll(self._connected())
                self._log_once("libvirt responds")
            except (libvirt.libvirtError, errors.VirtError, OSError) as exc:
                self._log_once(f"libvirt: {exc}")
                self._close()
            except Exception as exc:  # the polling thread must not end
                log.exception("polling libvirt failed: %s", exc)
            self._wake.wait(self.config.beat_s)
            self._wake.clear()
        self._close()

    def _connected(self) -> libvirt.virConnect:
        if self._conn is None:
            conn = libvirt.open(self.config.uri)
            with contextlib.suppress(libvirt.libvirtError):  # not supported by the test driver
                conn.setKeepAlive(_ALIVE_EVERY_S, _ALIVE_TIMES)
            self._listen(conn)
            self._conn = conn
        return self._conn

    def _listen(self, conn: libvirt.virConnect) -> None:
        """Register for events that libvirt's states do not show afterwards."""
        callbacks: dict[int, Callable[..., None]] = {
            libvirt.VIR_DOMAIN_EVENT_ID_WATCHDOG: self._on_watchdog,
            libvirt.VIR_DOMAIN_EVENT_ID_REBOOT: self._on_reboot,
        }
        for event, function in callbacks.items():
            with contextlib.suppress(libvirt.libvirtError):  # not supported by each driver
                self._events.append(conn.domainEventRegisterAny(None, event, function, None))

    def _stop_listening(self) -> None:
        """Deregister the events: otherwise the connection would not be closed."""
        events, self._events = self._events, []
        for event in events:
            with contextlib.suppress(libvirt.libvirtError):
                if self._conn is not None:
                    self._conn.domainEventDeregisterAny(event)

    def _on_watchdog(
        self, _conn: libvirt.virConnect, dom: libvirt.virDomain, action: int, _: object
    ) -> None:
        if dom.name() in self.names:
            log.warning("the watchdog of %s fired: action %s", dom.name(), action)
            self.health.on_watchdog(dom.name(), action)

    def _on_reboot(self, _conn: libvirt.virConnect, dom: libvirt.virDomain, _: object) -> None:
        if dom.name() in self.names:
            self.health.on_reboot(dom.name())

    def _close(self) -> None:
        self._stop_listening()
        conn, self._conn = self._conn, None
        with contextlib.suppress(libvirt.libvirtError):
            if conn is not None:
                conn.close()

    def _poll(self, conn: libvirt.virConnect) -> None:
        at_s = self._clock()
        domains = {domain.name: domain for domain in map(parse_stats, conn.getAllDomainStats(1))}
        names = self.names
        self.instances.update(DomainListing(at_s, domains), names, self._clock())
        self.health.update(domains, names)
        self._obsolete.difference_update(
            [name for name, domain in domains.items() if domain.active]
        )
        for name in [name for name in self._shutdown_since if not self._is_alive(name)]:
            del self._shutdown_since[name]
        self._refuse_autostart(conn)
        local_names = [name for name in names if name in domains]
        # if a guest is managed again, send its definition again
        self._sent_digests = {
            name: digest for name, digest in self._sent_digests.items() if name in names
        }
        if self._clock() - self._sent_s >= _DEFINITIONS_EVERY_S:
            self._sent_s = self._clock()
            self._send_definitions(conn, local_names)
        else:  # send new and changed definitions at once: the host may fail at any moment
            stamps = {name: self._file_stamp(name) for name in local_names}
            new = [name for name in local_names if name not in self._sent_digests]
            new += [name for name in local_names if stamps[name] != self._file_stamps.get(name)]
            self._send_definitions(conn, dict.fromkeys(new))
            self._file_stamps = stamps

    def _file_stamp(self, name: str) -> tuple[int, ...]:
        """Return a value that changes when libvirt saves the definition. libvirt sends no event for
        some changes."""
        try:
            status = (
                os.stat(f"{self.config.definitions_folder}/{name}.xml")
                if self.config.definitions_folder
                else None
            )
        except OSError:
            return ()
        return (status.st_ino, status.st_mtime_ns, status.st_size) if status else ()

    def _refuse_autostart(self, conn: libvirt.virConnect) -> None:
        """Switch autostart off: when a host comes back, its guests may run elsewhere."""
        for dom in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART):
            name = dom.name()
            if name in self.managed:
                with contextlib.suppress(libvirt.libvirtError):  # the domain may be gone
                    dom.setAutostart(0)
                    log.warning(
                        "switched off the autostart of %s: only high availability starts this "
                        "guest", name,
                    )  # fmt: skip

    def _is_alive(self, name: str) -> bool:
        instance = self.instances.get(name)
        return instance is not None and instance.state in ALIVE

    def _send_definitions(self, conn: libvirt.virConnect, names: Collection[str]) -> None:
        for name in names:
            try:
                dom = conn.lookupByName(name)
                flags = libvirt.VIR_DOMAIN_XML_SECURE
                flags |= libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_MIGRATABLE
                definition = definitions.parse(name, dom.XMLDesc(flags))
            except (libvirt.libvirtError, errors.VirtError) as exc:
                log.warning("the definition of %s cannot be read: %s", name, exc)
                self._sent_digests.setdefault(name, "")
                continue
            if self._sent_digests.get(name) != definition.digest or self._is_missed(definition):
                self._sent_digests[name] = definition.digest
                self.on_definition(definition)

    def _is_missed(self, definition: GuestDefinition) -> bool:
        """Whether it is a guest of this host whose present definition no master has sent back: for
        example, masters refuse it while the guest is on another host."""
        cached = self.definition_cache.get(definition.name)
        return definition.name in self.owned and (
            cached is None or cached.digest != definition.digest
        )

    def resend(self) -> None:
        """Send all definitions again, because a master may have none."""
        self._sent_digests = {}
        self._sent_s = 0.0

    def _log_once(self, text: str) -> None:
        if text != self._last_message:
            log.info("%s", text)
        self._last_message = text

    # actions

    def start(self, name: str, epoch: int) -> None:
        """Start a guest of this host with that epoch."""
        before = self.instances.get(name)
        uuid = before.uuid if before else ""
        self._unwanted.discard(name)
        self.health.on_start(name)
        lease, unsure = (before.lease, before.lease_unsure) if before else (0, False)
        starting = Instance(epoch, STARTING, uuid, 0, self._clock(), True, lease, unsure)
        is_started = False
        try:
            self.instances.put(name, starting)
            is_started = self._begin("start", name, self._start, epoch)
        finally:
            if not is_started:
                self.instances.change(name, self._clock(), busy=False)

    def lease(self, name: str, version: int) -> None:
        """Take the lease of the guest's disks for that request: start it paused, so that it has the
        locks that the storage gives to one host only."""
        before = self.instances.get(name) or Instance(0, OFF)
        if before.busy or before.state in ALIVE:
            return
        if self._begin("lease", name, self._lease, version):
            self._unwanted.discard(name)

    def adopt(self, name: str, epoch: int) -> None:
        """Set the epoch of a guest that runs already."""
        instance = self.instances.get(name)
        if instance is not None:
            self.instances.change(name, instance.since_s, epoch=epoch)

    def kill(self, name: str) -> None:
        """Power the guest off."""
        self._unwanted.add(name)
        self._begin("kill", name, self._kill)

    def release(self, name: str) -> None:
        """Leave the guest to the operator. A start that waits for a disk is cancelled."""
        self._unwanted.add(name)

    def shut_down(self, name: str) -> None:
        """Ask the guest to shut down, repeatedly. Power it off after shutdown_wait_s."""
        self._unwanted.add(name)
        now_s = self._clock()
        since_s = self._shutdown_since.setdefault(name, now_s)
        if now_s - since_s >= self.config.shutdown_wait_s:
            self.kill(name)
        else:
            self._begin("stop", name, self._request_shutdown)

    def drop(self, name: str) -> None:
        """Undefine the guest and keep its disks and UEFI variables. This definition is not used for
        a start any more."""
        self._obsolete.add(name)
        self._begin("drop", name, self._drop)

    def run_in_thread(
        self, kind: str, name: str, work: Callable[..., None], *parameters: object
    ) -> bool:
        """Run another action on a guest on a thread of its own."""
        return self._begin(kind, name, work, *parameters)

    def domain(self, name: str) -> libvirt.virDomain | None:
        """Return libvirt's domain, or None. Raises libvirtError, ConnectionFailed."""
        conn = self._conn
        if conn is None:
            raise errors.ConnectionFailed("libvirt does not respond")
        try:
            return conn.lookupByName(name)
        except libvirt.libvirtError as exc:
            if exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                return None
            raise

    def _begin(self, kind: str, name: str, work: Callable[..., None], *parameters: object) -> bool:
        """Start a thread, unless the same action is running or no thread can be created."""
        with self._guard:
            if (kind, name) in self._busy:
                return False
            self._busy.add((kind, name))
        args = (kind, name, work, parameters)
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
        self, kind: str, name: str, work: Callable[..., None], parameters: tuple[object, ...]
    ) -> None:
        try:
            work(name, *parameters)
        except (libvirt.libvirtError, errors.VirtError, OSError) as exc:
            log.error("cannot %s %s: %s", kind, name, exc)
        finally:
            with self._guard:
                self._busy.discard((kind, name))
            self._wake.set()

    def _start(self, name: str, epoch: int) -> None:
        """Start the guest. Report it as failed only if libvirt itself reports that: otherwise it
        may still start later."""
        is_definite = False
        try:
            with guest_lock.acquire(self.config.locks, "ha: start", name, wait_s=_LOCK_WAIT_S):
                dom = self._ensure_defined(name)
                with contextlib.suppress(libvirt.libvirtError):  # not supported by each driver
                    dom.setAutostart(0)
                self._create(name, dom)
            is_definite = True
            log.info("guest %s is running, epoch %s", name, epoch)
        except (errors.VirtError, OSError) as exc:
            is_definite = True
            self.health.on_start_failed(name, exc)
            raise
        except libvirt.libvirtError as exc:
            self.health.on_start_failed(name, exc)
            is_definite = self._conn is not None and bool(self._conn.isAlive())
            raise
        finally:
            instance = self.instances.get(name)
            if instance is not None and instance.epoch == epoch and instance.busy:
                failed = is_definite and not self._runs(name)
                fields: dict[str, Any] = {"state": FAILED} if failed else {}
                self.instances.change(name, self._clock(), busy=False, **fields)

    def _lease(self, name: str, version: int) -> None:
        """Take the lease. It is held once libvirt has started the guest, because QEMU takes the
        locks of its disks first."""
        before = self.instances.get(name) or Instance(0, OFF)
        now_s = self._clock()
        is_held = False
        requested = replace(before, since_s=now_s, busy=True, lease=version, lease_unsure=True)
        try:
            self.instances.put(name, requested)
            with guest_lock.acquire(self.config.locks, "ha: lease", name, wait_s=_LOCK_WAIT_S):
                dom = self._ensure_defined(name)
                with contextlib.suppress(libvirt.libvirtError):  # not supported by each driver
                    dom.setAutostart(0)
                self._start_paused(dom, before)
            is_held = True
            log.info("guest %s is paused and holds the lease of its disks", name)
        except libvirt.libvirtError as exc:
            if not _is_locked(exc):
                raise
            log.info("guest %s: its disks are still locked", name)
        finally:
            self.instances.change(name, self._clock(), busy=False, lease_unsure=not is_held)
            if not is_held:
                time.sleep(_LEASE_RETRY_S)

    def _start_paused(self, dom: libvirt.virDomain, before: Instance) -> None:
        """Start the guest paused. before: its previous instance."""
        if dom.isActive():
            if not before.lease or dom.state()[0] != PAUSED:
                raise errors.OperationFailed("the guest is running")
            if before.has_lease:
                return
            dom.destroy()
        dom.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)

    def _create(self, name: str, dom: libvirt.virDomain) -> None:
        """Start the guest, and repeat that while a disk is locked: the lock may belong to the
        failed host. A guest that is paused for a lease is resumed."""
        instance = self.instances.get(name)
        if instance is not None and instance.lease and dom.isActive():
            if instance.has_lease:
                dom.resume()
                return
            if dom.state()[0] == PAUSED:
                dom.destroy()
        end_s, is_logged = self._clock() + _DISK_WAIT_S, False
        while not dom.isActive():
            try:
                dom.create()
                return
            except libvirt.libvirtError as exc:
                if not _is_locked(exc) or name in self._unwanted or self._clock() >= end_s:
                    raise
                if not is_logged:
                    log.warning("%s waits, because its disk is still locked: %s", name, exc)
                is_logged = True
            time.sleep(_DISK_RETRY_S)
            if name in self._unwanted:
                raise errors.OperationFailed("its disk is locked, and the start was cancelled")

    def _runs(self, name: str) -> bool:
        """Whether libvirt reports the guest as active; if unknown, True."""
        try:
            dom = self.domain(name)
            return dom is not None and bool(dom.isActive())
        except (libvirt.libvirtError, errors.VirtError):
            return True

    def _ensure_defined(self, name: str) -> libvirt.virDomain:
        dom = self.domain(name)
        if dom is not None and name in self._obsolete and not dom.isActive():
            self._undefine_guest(name)
            dom = None
        if dom is not None:
            return dom
        cached = self.definition_cache.get(name)
        if cached is None or self._conn is None:
            raise errors.NotFound(f"this host has no definition of {name}")
        return self._conn.defineXML(cached.xml)

    def _kill(self, name: str) -> None:
        dom = self.domain(name)
        if dom is not None and dom.isActive():
            dom.destroy()

    def _request_shutdown(self, name: str) -> None:
        dom = self.domain(name)
        if dom is not None and dom.isActive():
            if dom.state()[0] == _CRASHED:  # a crashed guest cannot shut down
                dom.destroy()
                return
            dom.shutdown()
            end_s = time.monotonic() + SHUTDOWN_RETRY_S
            while time.monotonic() < end_s and dom.isActive():
                time.sleep(0.5)

    def _drop(self, name: str) -> None:
        with guest_lock.acquire(self.config.locks, "ha: drop", name, wait_s=_LOCK_WAIT_S):
            self._undefine_guest(name)
        self.instances.drop(name)

    def _undefine_guest(self, name: str) -> None:
        dom = self.domain(name)
        if dom is not None:
            instance = self.instances.get(name)
            if (
                dom.isActive()
                and instance is not None
                and instance.lease
                and dom.state()[0] == PAUSED
            ):
                dom.destroy()  # it was paused for a lease that is no longer requested
            if dom.isActive():
                raise errors.OperationFailed("the guest is running")
            _undefine(dom)
            departures.record_departure(name, "another host by high availability")
        self._obsolete.discard(name)


def _is_locked(exc: libvirt.libvirtError) -> bool:
    """Whether QEMU or virtlockd reports that a disk is locked."""
    return exc.get_error_code() == libvirt.VIR_ERR_RESOURCE_BUSY or bool(
        re.search('Failed to get .*"(write|consistent read|shared .*)" lock', str(exc))
    )


def _undefine(dom: libvirt.virDomain) -> None:
    """Undefine a domain with the flags that this version of libvirt and its driver support."""
    basic = _flags("MANAGED_SAVE", "SNAPSHOTS_METADATA")
    nvram = basic | _flags("KEEP_NVRAM")
    tpm = nvram | _flags("KEEP_TPM")
    checkpoints = tpm | _flags("CHECKPOINTS_METADATA")
    unknown = (libvirt.VIR_ERR_INVALID_ARG, libvirt.VIR_ERR_NO_SUPPORT)
    for flags in (checkpoints, tpm, nvram, basic, 0):
        try:
            dom.undefineFlags(flags)
            return
        except libvirt.libvirtError as exc:
            if exc.get_error_code() not in unknown or not flags:
                raise


def _flags(*names: str) -> int:
    return sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{name}", 0) for name in names)


def parse_stats(row: tuple[libvirt.virDomain, dict[str, Any]]) -> DomainState:
    """Parse a row of libvirt's statistics."""
    dom, stats = row
    state, reason = stats.get("state.state", 0), stats.get("state.reason", 0)
    return DomainState(
        dom.name(),
        dom.UUIDString(),
        active=state in _ACTIVE or (state == _CRASHED and dom.ID() >= 0),
        incoming=state == PAUSED and reason in _INCOMING_REASONS,
        crashed=state == _CRASHED or (state == _SHUT_OFF and reason == _OFF_CRASHED),
        state=state,
        reason=reason,
        number=dom.ID(),
    )
