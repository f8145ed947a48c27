"""Which guests of high availability this host has, of which epoch, and how they are: from what the
agent did and what libvirt was seen to have. It outlives the agent, not its host."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

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

# a start of which nobody knows how it ended has failed when libvirt shows it off for so long
UNCLEAR_S = 60
# a guest that was to come in, and of which nothing is seen, does not come any more
INCOMING_WAIT_S = 30
# virDomainState
PAUSED = 3
# in the file, of a lease that may be held
_LEASE_KEY = "lease_asked"


@dataclass(frozen=True)
class Instance(Message):
    """A guest on this host. since_s: when it became so, by the clock of this boot. busy: its start
    is at work. lease: it is held paused, and has the lock of its disks: for that question.
    lease_unsure: it may be held; the lock was asked for, and nobody saw the answer."""

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
        """It is held, and that is known."""
        return bool(self.lease) and not self.lease_unsure


@dataclass(frozen=True)
class DomainState:
    """A domain of libvirt. incoming: it waits for a migration to end. crashed: so it ended. state,
    reason: libvirt's numbers; number: of this start."""

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
        """It does nothing, whatever for."""
        return self.state == PAUSED


@dataclass(frozen=True)
class DomainListing:
    """All domains, by name. at_s: before which time nothing is missed."""

    at_s: float
    domains: dict[str, DomainState] = field(default_factory=dict)

    def find(self, name: str, uuid: str) -> DomainState | None:
        """The domain of that UUID, else that of the name."""
        match = next(
            (domain for domain in self.domains.values() if uuid and domain.uuid == uuid), None
        )
        return match or self.domains.get(name)


@dataclass(frozen=True)
class InstanceFile(Message):
    """The file. boot_id: of which run of the kernel; copies: by name."""

    boot_id: str
    copies: dict[str, Instance] = field(default_factory=dict)


def check(path: str) -> None:
    """Raises BadAnswer for a file that cannot be read, OSError."""
    _read(path)


def _read(path: str) -> InstanceFile | None:
    data = store.read(path)
    return None if data is None else InstanceFile.from_answer(_from_old_format(data), path)


def _from_old_format(data: Any) -> Any:
    """A lease that may be held has a key of its own in the file: a version before would take it for
    held. That version itself wrote it as a number below 0."""
    instances = data.get("copies") if isinstance(data, dict) else None
    for instance in instances.values() if isinstance(instances, dict) else ():
        if not isinstance(instance, dict):
            continue
        lease = instance.get("lease")
        if isinstance(lease, int) and lease < 0:
            instance |= {"lease": -lease, "lease_unsure": True}
        if _LEASE_KEY in instance:
            instance |= {"lease": instance.pop(_LEASE_KEY), "lease_unsure": True}
    return data


def _to_old_format(data: dict[str, Any]) -> dict[str, Any]:
    """The same the other way round."""
    for instance in data["copies"].values():
        if instance.pop("lease_unsure", False):
            instance[_LEASE_KEY] = instance.pop("lease", 0)
    return data


class InstanceTable:
    """All copies. path: their file, in memory. Its methods may be called by any thread."""

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
        """What the agent did with a guest."""
        with self._guard:
            self._instances = {**self._instances, name: instance}
            self._write()

    def get(self, name: str) -> Instance | None:
        """That of a guest."""
        return self._instances.get(name)

    def change(self, name: str, now_s: float, **fields: object) -> None:
        """Of a copy that is there."""
        with self._guard:
            instance = self._instances.get(name)
            if instance is not None:
                changed = replace(instance, since_s=now_s, **fields)  # type: ignore[arg-type]
                self._instances = {**self._instances, name: changed}
                self._write()

    def drop(self, name: str) -> None:
        """It is no longer here."""
        with self._guard:
            self._instances = {
                key: instance for key, instance in self._instances.items() if key != name
            }
            self._write()

    def clear(self) -> None:
        """None is left from before."""
        with self._guard:
            self._instances = {}
            self._write()

    def update(self, listing: DomainListing, names: Collection[str], now_s: float) -> None:
        """Takes in what libvirt was seen to have. names: of guests of high availability."""
        with self._guard:
            self._listing = listing
            updated = {
                name: reconcile(instance, listing.find(name, instance.uuid), listing.at_s, now_s)
                for name, instance in self._instances.items()
                # another guest may get the name of one that was taken back, and that one another
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
        """Before which time nothing is missed; None: libvirt has not been seen yet."""
        return self._listing.at_s if self._listing else None

    def is_defined(self, name: str) -> bool:
        """Whether libvirt has a domain of the name; in doubt, yes."""
        return self._listing is None or name in self._listing.domains

    def statuses(self, names: Collection[str]) -> dict[str, GuestStatus]:
        """Those of the names that are here, as the agent's step has them."""
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
        """Guests whose disks this host holds the lock of, while none of them runs: for which
        question each."""
        instances = self._instances.items()
        return {
            name: instance.lease
            for name, instance in instances
            if instance.has_lease and not instance.busy
        }

    def _write(self) -> None:
        data = _to_old_format(InstanceFile(self._boot_id, self._instances).to_answer())
        store.replace(self._path, json.dumps(data).encode(), durable=False)


def reconcile(
    instance: Instance, domain: DomainState | None, at_s: float, now_s: float
) -> Instance:
    """The copy after a look at libvirt that began at at_s."""
    if instance.busy or at_s < instance.since_s:
        return instance
    uuid = instance.uuid or (domain.uuid if domain else "")
    if instance.lease and domain is not None and domain.active and domain.paused:
        domain = replace(domain, active=False)  # it is held, and does not run
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
