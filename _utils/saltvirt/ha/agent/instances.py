"""The managed guests of this host, their epochs and states, from the agent's actions and from what
libvirt reports. The table survives a restart of the agent, but not of its host."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from saltvirt.ha.agent import store
from saltvirt.ha.model.messages import (
    ALIVE,
    CRASHED,
    FAILED,
    INCOMING,
    OFF,
    RUNNING,
    STARTING,
    STOPPED,
    GuestStatus,
)
from saltvirt.schema import Message, optional
from saltvirt.system import atomic_file

# a start with an unknown result has failed if libvirt reports the domain as off for this time
UNCLEAR_S = 60
# timeout for an announced migration of which libvirt reports nothing
INCOMING_WAIT_S = 30
# virDomainState
PAUSED = 3


@dataclass(frozen=True)
class Instance(Message):
    """A guest on this host. since_s: when it got its state, by the clock of this boot. busy: its
    start is in progress. lease: the request for which it is paused and has the lock of its disks.
    lease_unsure: it may have the lock; it was requested, and the result is unknown."""

    epoch: int
    state: str
    uuid: str = ""
    migrated: int = 0
    since_s: float = 0
    busy: bool = False
    lease: int = optional(0)
    lease_unsure: bool = optional(False)

    @property
    def has_lease(self) -> bool:
        """Whether it certainly has the lease."""
        return bool(self.lease) and not self.lease_unsure


@dataclass(frozen=True)
class DomainState:
    """A domain of libvirt. incoming: it waits for the end of a migration. crashed: it ended with a
    crash. state, reason: libvirt's numbers; number: the ID of this start."""

    name: str
    uuid: str
    active: bool
    incoming: bool = False
    crashed: bool = False
    state: int = 0
    reason: int = 0
    number: int = -1

    @property
    def paused(self) -> bool:
        """Whether it is paused, for any reason."""
        return self.state == PAUSED


@dataclass(frozen=True)
class DomainListing:
    """All domains by name. at_s: changes before this time are included."""

    at_s: float
    domains: dict[str, DomainState] = field(default_factory=dict)

    def find(self, name: str, uuid: str) -> DomainState | None:
        """Return the domain with that UUID, or else with the name."""
        match = next(
            (domain for domain in self.domains.values() if uuid and domain.uuid == uuid), None
        )
        return match or self.domains.get(name)


@dataclass(frozen=True)
class InstanceFile(Message):
    """The file. boot_id: the boot of the kernel that it belongs to; copies: instances by name."""

    boot_id: str
    copies: dict[str, Instance] = field(default_factory=dict)


def check(path: str) -> None:
    """Raise BadAnswer or OSError if the file cannot be read."""
    _read(path)


def _read(path: str) -> InstanceFile | None:
    data = store.read(path)
    return None if data is None else InstanceFile.from_answer(data, path)


class InstanceTable:
    """All instances. path: their file, in memory. Its methods are thread-safe."""

    def __init__(self, path: str, boot_id: str, now_s: float) -> None:
        self._path, self._boot_id = path, boot_id
        self._guard = threading.Lock()
        self._listing: DomainListing | None = None
        stored = _read(path)
        self.is_known = stored is not None and stored.boot_id == boot_id
        self._instances = {
            name: replace(
                instance,
                busy=False,
                since_s=now_s if instance.state == STARTING else instance.since_s,
            )
            for name, instance in (stored.copies if stored and self.is_known else {}).items()
        }

    def put(self, name: str, instance: Instance) -> None:
        """Record what the agent did with a guest."""
        with self._guard:
            self._instances = {**self._instances, name: instance}
            self._write()

    def get(self, name: str) -> Instance | None:
        """Return the instance of a guest, or None."""
        return self._instances.get(name)

    def change(self, name: str, now_s: float, **fields: object) -> None:
        """Change fields of an instance, if there is one."""
        with self._guard:
            instance = self._instances.get(name)
            if instance is not None:
                changed = replace(instance, since_s=now_s, **fields)  # type: ignore[arg-type]
                self._instances = {**self._instances, name: changed}
                self._write()

    def drop(self, name: str) -> None:
        """Remove a guest that is no longer on this host."""
        with self._guard:
            self._instances = {
                key: instance for key, instance in self._instances.items() if key != name
            }
            self._write()

    def clear(self) -> None:
        """Remove all instances."""
        with self._guard:
            self._instances = {}
            self._write()

    def update(self, listing: DomainListing, names: Collection[str], now_s: float) -> None:
        """Apply what libvirt reported. names: the managed guests."""
        with self._guard:
            self._listing = listing
            updated = {
                name: reconcile(instance, listing.find(name, instance.uuid), listing.at_s, now_s)
                for name, instance in self._instances.items()
                # the name of a guest that is no longer managed may be used for another guest
                if name in names or instance.busy or instance.lease
            }
            for name in names:
                domain = listing.domains.get(name)
                if name not in self._instances and domain is not None and domain.active:
                    updated[name] = Instance(0, RUNNING, domain.uuid, since_s=listing.at_s)
            if updated != self._instances or not self.is_known:
                self._instances, self.is_known = updated, True
                self._write()

    @property
    def observed_s(self) -> float | None:
        """The time up to which libvirt's domains are known; None: libvirt has not answered yet."""
        return self._listing.at_s if self._listing else None

    def is_defined(self, name: str) -> bool:
        """Whether libvirt has a domain of the name; if unknown, True."""
        return self._listing is None or name in self._listing.domains

    def statuses(self, names: Collection[str]) -> dict[str, GuestStatus]:
        """Return the status of those guests that are on this host, for the agent's step."""
        result = {}
        for name in names:
            instance = self._instances.get(name)
            domain = self._listing.domains.get(name) if self._listing else None
            if instance is not None:
                result[name] = GuestStatus(instance.epoch, instance.state, instance.migrated)
            elif domain is not None:
                result[name] = GuestStatus(0, RUNNING if domain.active else OFF)
        return result

    def leases(self) -> dict[str, int]:
        """Return the guests that hold their disks' lock for this host while they do not run, with
        the request of each."""
        instances = self._instances.items()
        return {
            name: instance.lease
            for name, instance in instances
            if instance.has_lease and not instance.busy
        }

    def _write(self) -> None:
        data = InstanceFile(self._boot_id, self._instances).to_answer()
        atomic_file.write(self._path, json.dumps(data).encode(), durable=False)


def reconcile(
    instance: Instance, domain: DomainState | None, at_s: float, now_s: float
) -> Instance:
    """Return the instance after a query of libvirt that began at at_s."""
    if instance.busy or at_s < instance.since_s:
        return instance
    uuid = instance.uuid or (domain.uuid if domain else "")
    if instance.lease and domain is not None and domain.active and domain.paused:
        domain = replace(domain, active=False)  # it is paused for the lease and does not run
    elif instance.lease:
        instance = replace(instance, lease=0, lease_unsure=False)
    if domain is not None and domain.active:
        state = INCOMING if instance.state == INCOMING and domain.incoming else RUNNING
        if (state, uuid) == (instance.state, instance.uuid):
            return instance
        return replace(instance, state=state, uuid=uuid, since_s=at_s)
    if instance.state in ALIVE:
        patience_s = {STARTING: UNCLEAR_S, INCOMING: 0 if instance.uuid else INCOMING_WAIT_S}.get(
            instance.state, 0
        )
        if now_s - instance.since_s < patience_s:
            return instance
        return replace(instance, state=_end_state(instance, domain), uuid=uuid, since_s=at_s)
    return instance


def _end_state(instance: Instance, domain: DomainState | None) -> str:
    if instance.state == STARTING:
        return FAILED
    return CRASHED if domain is not None and domain.crashed else STOPPED
