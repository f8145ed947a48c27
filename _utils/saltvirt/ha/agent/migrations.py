"""Live migrations to and from this host: the agent of the target consents first, then libvirt
migrates."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.ha.agent.guests import Guests
from saltvirt.ha.agent.instances import Instance, InstanceTable
from saltvirt.ha.model.messages import ALIVE, INCOMING, RUNNING
from saltvirt.host.connection import libvirt
from saltvirt.host.migration import live

log = logging.getLogger(__name__)

# timeouts: until the target consents; until libvirt must start after that; until memory is
# transferred, less than the target waits for it (instances.INCOMING_WAIT_S)
ASK_TIMEOUT_S, CONSENT_S, BEGIN_S = 15, 5, 15
_POLL_S = 1
FLAGS = ("LIVE", "PEER2PEER", "PERSIST_DEST", "UNDEFINE_SOURCE", "TLS", "AUTO_CONVERGE",
         "ABORT_ON_ERROR")  # fmt: skip


@dataclass
class OutgoingMigration:
    """A guest that leaves this host. requested_s: when the target was last asked."""

    epoch: int
    host: str
    began_s: float
    requested_s: float = 0
    is_running: bool = False


class GuestMigrations:
    """ask: called with the names of the target and the guest, and the epoch. uri: returns libvirt's
    URI of a host. notify: called with the names of the guest and the target, and the reason, if a
    migration failed."""

    def __init__(
        self,
        guests: Guests,
        clock: Callable[[], float],
        ask: Callable[[str, str, int], None],
        uri: Callable[[str], str],
        notify: Callable[[str, str, str], None],
    ) -> None:
        self._guests, self._clock, self._ask, self._uri = guests, clock, ask, uri
        self._notify = notify
        self._migrations: dict[str, OutgoingMigration] = {}

    @property
    def _instances(self) -> InstanceTable:
        return self._guests.instances

    # outgoing

    def send(self, name: str, epoch: int, host: str) -> None:
        """Migrate a guest. Called again with each heartbeat, until the guest has left or the
        migration has failed."""
        now_s = self._clock()
        migration = self._migrations.get(name)
        if migration is None or (migration.epoch, migration.host) != (epoch, host):
            migration = self._migrations[name] = OutgoingMigration(epoch, host, now_s)
        if migration.is_running:
            return
        if now_s - migration.began_s > ASK_TIMEOUT_S:
            self._failed(name, migration, "the target did not consent")
            return
        migration.requested_s = now_s
        self._ask(host, name, epoch)

    def handle_answer(self, host: str, name: str, epoch: int, is_accepted: bool) -> None:
        """Handle the answer of the target."""
        migration = self._migrations.get(name)
        if (
            migration is None
            or (migration.epoch, migration.host) != (epoch, host)
            or migration.is_running
            or not is_accepted
        ):
            return
        if self._clock() - migration.requested_s < CONSENT_S:
            migration.is_running = self._guests.run_in_thread(
                "migrate", name, self._migrate, migration
            )

    def _migrate(self, name: str, migration: OutgoingMigration) -> None:
        try:
            dom = self._guests.domain(name)
            if dom is None or self._clock() - migration.requested_s > CONSENT_S:
                self._failed(name, migration, "the consent of the target has expired")
                return
            if _is_under_way(dom):
                self._follow(name, dom, migration)
                return
            done = threading.Event()
            watch = threading.Thread(target=_watch, args=(dom, done), daemon=True)
            watch.start()
            try:
                dom.migrateToURI3(self._uri(migration.host), {}, live.flags(FLAGS))
            finally:
                done.set()
            self._complete(name, migration)
        except (libvirt.libvirtError, errors.VirtError) as exc:
            self._failed(name, migration, str(exc))

    def _follow(self, name: str, dom: libvirt.virDomain, migration: OutgoingMigration) -> None:
        """Wait for a migration that the previous agent has started: libvirt continues it."""
        log.info("guest %s is already migrating to %s", name, migration.host)
        with contextlib.suppress(libvirt.libvirtError):  # the domain is gone
            while _is_under_way(dom):
                time.sleep(_POLL_S)
        if self._guests.domain(name) is None:
            self._complete(name, migration)
        else:
            self._failed(name, migration, "the migration that was already running failed")

    def _complete(self, name: str, migration: OutgoingMigration) -> None:
        log.info("guest %s has migrated to %s, epoch %s", name, migration.host, migration.epoch)
        self._migrations.pop(name, None)
        self._instances.drop(name)

    def _failed(self, name: str, migration: OutgoingMigration, reason: str) -> None:
        log.error("cannot migrate guest %s to %s: %s", name, migration.host, reason)
        self._migrations.pop(name, None)
        instance = self._instances.get(name)
        if instance is not None and instance.state == RUNNING:
            self._instances.change(name, instance.since_s, migrated=migration.epoch)
        self._notify(name, migration.host, reason)

    # incoming

    def expect(self, name: str, epoch: int) -> bool:
        """Accept a guest, as the agent's step decided. Return whether no instance of it exists
        yet."""
        instance = self._instances.get(name)
        is_repeated = instance is not None and (instance.state, instance.epoch) == (INCOMING, epoch)
        if instance is not None and instance.state in ALIVE and not is_repeated:
            return False
        if instance is None or not instance.uuid or not is_repeated:
            self._instances.put(name, Instance(epoch, INCOMING, since_s=self._clock()))
        return True


def _is_under_way(dom: libvirt.virDomain) -> bool:
    """Whether libvirt is migrating the guest away. Raises libvirtError."""
    outgoing = libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
    try:
        stats = dom.jobStats()
        return bool(stats.get("type")) and stats.get("operation") == outgoing
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:  # not supported by each driver
            return False
        raise


def _watch(dom: libvirt.virDomain, done: threading.Event) -> None:
    """Abort a migration that transfers no memory, before the target stops waiting for it."""
    if done.wait(BEGIN_S):
        return
    with contextlib.suppress(libvirt.libvirtError):
        if not live.statistics(dom).get("memory_processed"):
            dom.abortJob()
