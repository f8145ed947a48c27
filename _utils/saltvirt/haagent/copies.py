"""Which guests of high availability this host has, of which epoch, and how they are: from what the
agent did and what libvirt was seen to have. It outlives the agent, not its host."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.ha.facts import (
    ALIVE,
    CRASHED,
    FAILED,
    INCOMING,
    OFF,
    RUNNING,
    STARTING,
    STOPPED,
    GuestThere,
)
from saltvirt.haagent import store
from saltvirt.wire import Fact, seldom

# a start of which nobody knows how it ended has failed when libvirt shows it off for so long
UNCLEAR_S = 60
# a guest that was to come in, and of which nothing is seen, does not come any more
COMING_S = 30
# virDomainState
PAUSED = 3
# in the file, of a lease that may be held
_ASKED = "lease_asked"


@dataclass(frozen=True)
class Copy(Fact):
    """A guest on this host. since_s: when it became so, by the clock of this boot. busy: its start
    is at work. lease: it is held paused, and has the lock of its disks: for that question.
    lease_unsure: it may be held; the lock was asked for, and nobody saw the answer."""

    epoch: int
    state: str
    uuid: str = ""
    migrated: int = 0
    since_s: float = 0
    busy: bool = False
    lease: int = seldom(0)
    lease_unsure: bool = seldom(False)

    @property
    def has_lease(self) -> bool:
        """It is held, and that is known."""
        return bool(self.lease) and not self.lease_unsure


@dataclass(frozen=True)
class Seen:
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
class Snapshot:
    """All domains, by name. at_s: before which time nothing is missed."""

    at_s: float
    domains: dict[str, Seen] = field(default_factory=dict)

    def of(self, name: str, uuid: str) -> Seen | None:
        """The domain of that UUID, else that of the name."""
        found = next((one for one in self.domains.values() if uuid and one.uuid == uuid), None)
        return found or self.domains.get(name)


@dataclass(frozen=True)
class CopiesOfBoot(Fact):
    """The file. boot_id: of which run of the kernel; copies: by name."""

    boot_id: str
    copies: dict[str, Copy] = field(default_factory=dict)


def check(path: str) -> None:
    """Raises BadAnswer for a file that cannot be read, OSError."""
    _read(path)


def _read(path: str) -> CopiesOfBoot | None:
    data = store.read(path)
    return None if data is None else CopiesOfBoot.from_answer(_of_before(data), path)


def _of_before(data: Any) -> Any:
    """A lease that may be held has a key of its own in the file: a version before would take it for
    held. That version itself wrote it as a number below 0."""
    copies = data.get("copies") if isinstance(data, dict) else None
    for one in copies.values() if isinstance(copies, dict) else ():
        if not isinstance(one, dict):
            continue
        lease = one.get("lease")
        if isinstance(lease, int) and lease < 0:
            one |= {"lease": -lease, "lease_unsure": True}
        if _ASKED in one:
            one |= {"lease": one.pop(_ASKED), "lease_unsure": True}
    return data


def _for_before(data: dict[str, Any]) -> dict[str, Any]:
    """The same the other way round."""
    for one in data["copies"].values():
        if one.pop("lease_unsure", False):
            one[_ASKED] = one.pop("lease", 0)
    return data


class Copies:
    """All copies. path: their file, in memory. Its methods may be called by any thread."""

    def __init__(self, path: str, boot_id: str, now_s: float) -> None:
        self._path, self._boot_id = path, boot_id
        self._guard = threading.Lock()
        self._last: Snapshot | None = None
        found = _read(path)
        self.is_known = found is not None and found.boot_id == boot_id
        self._copies = {
            name: replace(one, busy=False, since_s=now_s if one.state == STARTING else one.since_s)
            for name, one in (found.copies if found and self.is_known else {}).items()
        }

    def put(self, name: str, copy: Copy) -> None:
        """What the agent did with a guest."""
        with self._guard:
            self._copies = {**self._copies, name: copy}
            self._write()

    def get(self, name: str) -> Copy | None:
        """That of a guest."""
        return self._copies.get(name)

    def change(self, name: str, now_s: float, **fields: object) -> None:
        """Of a copy that is there."""
        with self._guard:
            copy = self._copies.get(name)
            if copy is not None:
                changed = replace(copy, since_s=now_s, **fields)  # type: ignore[arg-type]
                self._copies = {**self._copies, name: changed}
                self._write()

    def drop(self, name: str) -> None:
        """It is no longer here."""
        with self._guard:
            self._copies = {key: one for key, one in self._copies.items() if key != name}
            self._write()

    def clear(self) -> None:
        """None is left from before."""
        with self._guard:
            self._copies = {}
            self._write()

    def look(self, snapshot: Snapshot, names: Collection[str], now_s: float) -> None:
        """Takes in what libvirt was seen to have. names: of guests of high availability."""
        with self._guard:
            self._last = snapshot
            found = {
                name: looked(copy, snapshot.of(name, copy.uuid), snapshot.at_s, now_s)
                for name, copy in self._copies.items()
                # another guest may get the name of one that was taken back, and that one another
                if name in names or copy.busy or copy.lease
            }
            for name in names:
                seen = snapshot.domains.get(name)
                if name not in self._copies and seen is not None and seen.active:
                    found[name] = Copy(0, RUNNING, seen.uuid, since_s=snapshot.at_s)
            if found != self._copies or not self.is_known:
                self._copies, self.is_known = found, True
                self._write()

    @property
    def looked_s(self) -> float | None:
        """Before which time nothing is missed; None: libvirt has not been seen yet."""
        return self._last.at_s if self._last else None

    def is_defined(self, name: str) -> bool:
        """Whether libvirt has a domain of the name; in doubt, yes."""
        return self._last is None or name in self._last.domains

    def there(self, names: Collection[str]) -> dict[str, GuestThere]:
        """Those of the names that are here, as the agent's step has them."""
        found = {}
        for name in names:
            copy = self._copies.get(name)
            seen = self._last.domains.get(name) if self._last else None
            if copy is not None:
                found[name] = GuestThere(copy.epoch, copy.state, copy.migrated)
            elif seen is not None:
                found[name] = GuestThere(0, RUNNING if seen.active else OFF)
        return found

    def leases(self) -> dict[str, int]:
        """Guests whose disks this host holds the lock of, while none of them runs: for which
        question each."""
        found = self._copies.items()
        return {name: one.lease for name, one in found if one.has_lease and not one.busy}

    def _write(self) -> None:
        data = _for_before(CopiesOfBoot(self._boot_id, self._copies).to_answer())
        store.replace(self._path, json.dumps(data).encode(), durable=False)


def looked(copy: Copy, seen: Seen | None, at_s: float, now_s: float) -> Copy:
    """The copy after a look at libvirt that began at at_s."""
    if copy.busy or at_s < copy.since_s:
        return copy
    uuid = copy.uuid or (seen.uuid if seen else "")
    if copy.lease and seen is not None and seen.active and seen.paused:
        seen = replace(seen, active=False)  # it is held, and does not run
    elif copy.lease:
        copy = replace(copy, lease=0, lease_unsure=False)
    if seen is not None and seen.active:
        state = INCOMING if copy.state == INCOMING and seen.incoming else RUNNING
        if (state, uuid) == (copy.state, copy.uuid):
            return copy
        return replace(copy, state=state, uuid=uuid, since_s=at_s)
    if copy.state in ALIVE:
        patience_s = {STARTING: UNCLEAR_S, INCOMING: 0 if copy.uuid else COMING_S}.get(
            copy.state, 0
        )
        if now_s - copy.since_s < patience_s:
            return copy
        return replace(copy, state=_end(copy, seen), uuid=uuid, since_s=at_s)
    return copy


def _end(copy: Copy, seen: Seen | None) -> str:
    if copy.state == STARTING:
        return FAILED
    return CRASHED if seen is not None and seen.crashed else STOPPED
