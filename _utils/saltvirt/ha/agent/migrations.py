"""Guests that migrate live, away from here and to here: the target's agent is asked first, then
libvirt does it."""

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

# so long the target is asked; so long its word holds until libvirt is told; so long libvirt may
# take until memory goes over: less than the target waits for it (copies.COMING_S)
ASK_TIMEOUT_S, CONSENT_S, BEGIN_S = 15, 5, 15
_POLL_S = 1
FLAGS = ("LIVE", "PEER2PEER", "PERSIST_DEST", "UNDEFINE_SOURCE", "TLS", "AUTO_CONVERGE",
         "ABORT_ON_ERROR")  # fmt: skip


@dataclass
class OutgoingMigration:
    """A guest on its way. asked_s: when the target was asked last."""

    epoch: int
    host: str
    began_s: float
    requested_s: float = 0
    is_running: bool = False


class GuestMigrations:
    """ask: called with the target's name, the guest's and the epoch. uri: of a host's libvirt.
    tell: called with the guest's name, the target's and the reason when it did not go."""

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

    # from here

    def send(self, name: str, epoch: int, host: str) -> None:
        """Said again each beat, until the guest is gone or did not go."""
        now_s = self._clock()
        migration = self._migrations.get(name)
        if migration is None or (migration.epoch, migration.host) != (epoch, host):
            migration = self._migrations[name] = OutgoingMigration(epoch, host, now_s)
        if migration.is_running:
            return
        if now_s - migration.began_s > ASK_TIMEOUT_S:
            self._failed(name, migration, "its target does not take it")
            return
        migration.requested_s = now_s
        self._ask(host, name, epoch)

    def handle_answer(self, host: str, name: str, epoch: int, is_accepted: bool) -> None:
        """What the target said."""
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
                self._failed(name, migration, "it was too late")
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
        """A migration that the agent before this one began: libvirt goes on with it."""
        log.info("guest %s is on its way to %s already", name, migration.host)
        with contextlib.suppress(libvirt.libvirtError):  # it is no longer here
            while _is_under_way(dom):
                time.sleep(_POLL_S)
        if self._guests.domain(name) is None:
            self._complete(name, migration)
        else:
            self._failed(name, migration, "its migration, which was under way already, ended here")

    def _complete(self, name: str, migration: OutgoingMigration) -> None:
        log.info("guest %s has gone to %s, epoch %s", name, migration.host, migration.epoch)
        self._migrations.pop(name, None)
        self._instances.drop(name)

    def _failed(self, name: str, migration: OutgoingMigration, reason: str) -> None:
        log.error("guest %s did not go to %s: %s", name, migration.host, reason)
        self._migrations.pop(name, None)
        instance = self._instances.get(name)
        if instance is not None and instance.state == RUNNING:
            self._instances.change(name, instance.since_s, migrated=migration.epoch)
        self._notify(name, migration.host, reason)

    # to here

    def expect(self, name: str, epoch: int) -> bool:
        """It may come in, as the agent's step has said: whether there is no copy already."""
        instance = self._instances.get(name)
        is_repeated = instance is not None and (instance.state, instance.epoch) == (INCOMING, epoch)
        if instance is not None and instance.state in ALIVE and not is_repeated:
            return False
        if instance is None or not instance.uuid or not is_repeated:
            self._instances.put(name, Instance(epoch, INCOMING, since_s=self._clock()))
        return True


def _is_under_way(dom: libvirt.virDomain) -> bool:
    """Whether libvirt is about to migrate it away. Raises libvirtError."""
    outgoing = libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
    try:
        stats = dom.jobStats()
        return bool(stats.get("type")) and stats.get("operation") == outgoing
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:  # a driver without it
            return False
        raise


def _watch(dom: libvirt.virDomain, done: threading.Event) -> None:
    """Ends a migration that does not begin: its target has stopped waiting for it."""
    if done.wait(BEGIN_S):
        return
    with contextlib.suppress(libvirt.libvirtError):
        if not live.statistics(dom).get("memory_processed"):
            dom.abortJob()
