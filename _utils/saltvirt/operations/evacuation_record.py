"""The one record of the guests that an evacuation moved away from a host.

This master keeps it by UUID, the host's mark of maintenance by name. Both are written here alone,
under the host's lock, from what was observed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.answers.maintenance import MaintenanceMark
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import away
from saltvirt.operations.migrate import MigrationLocations, locations
from saltvirt.operations.moves import MovesOutcome
from saltvirt.placement.facts import Guest


@dataclass(frozen=True)
class Observed:
    """Where a guest of the record is. hosts: host to the name that it has there. moving: a
    migration of it is not ended. silent: the hosts that were not heard, in words."""

    hosts: dict[str, str]
    moving: bool
    silent: str = ""

    def is_back(self, host: str) -> bool:
        """Whether it is on the host, and on its way nowhere."""
        return host in self.hosts and len(self.hosts) == 1 and not self.moving

    def is_away(self, host: str) -> bool:
        """Whether it is on other hosts, and on its way nowhere."""
        return bool(self.hosts) and host not in self.hosts and not self.moving

    @property
    def is_gone(self) -> bool:
        """Whether no host has it."""
        return not self.silent and not self.hosts


class EvacuationRecord:
    """guests: as away.Guests."""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self.fleet, self.host = fleet, host
        self.guests: away.Guests = {}
        self._others: set[str] = set()
        self._leaving: set[str] = set()

    def mark(self) -> MaintenanceMark | None:
        """The host's mark. Raises as Fleet.one does."""
        return self._told(None)

    def _told(self, arguments: dict[str, object] | None) -> MaintenanceMark | None:
        found = self.fleet.one(self.host, "virt.maintenance", arguments)
        return None if found is None else MaintenanceMark.from_answer(found, self.host)

    def read(self, mark: MaintenanceMark | None) -> None:
        """Takes over those of this master's guests that the host's mark names; what it names
        besides stays in the mark. A mark that somebody took away ends the record, too."""
        named = set(mark.guests) if mark else set()
        known = away.of(self.fleet.opts, self.host)
        self.guests = {uuid: name for uuid, name in known.items() if name in named}
        self._others = named - set(self.guests.values())

    @property
    def others(self) -> set[str]:
        """The guests that the mark names and that this master did not move away."""
        return self._others

    def leave(self, guests: Iterable[Guest], reason: str, drained: Iterable[str] = ()) -> None:
        """Writes down that these are about to leave. drained: the other hosts that take no guests.
        Raises OperationFailed where the host does not record it."""
        leaving = {guest.uuid or guest.name: guest.name for guest in guests}
        self.guests.update(leaving)
        self._leaving.update(leaving)
        away.leave(self.fleet.opts, self.host, leaving, drained)
        self.close(reason)

    def close(self, reason: str) -> None:
        """The host takes no guests. Raises OperationFailed where it has no such mark then."""
        mark = MaintenanceMark(reason, self._names())
        self._keep()
        if self._told(mark.to_answer()) != mark:
            raise errors.OperationFailed(
                f"{self.host} did not record its maintenance: it may get new guests"
            )

    def open(self, others: Iterable[str] = ()) -> None:
        """The host takes guests again, and goes on naming those that are still away. others: what
        else it names."""
        self._others = set(others)
        self._keep()
        self._told({"off": True, "guests": list(self._names())})

    def write(self) -> MaintenanceMark | None:
        """Writes down what the record is now, and leaves the host as open or closed as it is:
        returns the mark that it had."""
        self._keep()
        mark = self.mark()
        if (mark.guests if mark else ()) == self._names():
            return mark
        if mark is not None and mark.reason is not None:
            self._told(MaintenanceMark(mark.reason, self._names()).to_answer())
        else:
            self._told({"off": True, "guests": list(self._names())})
        return mark

    def _names(self) -> tuple[str, ...]:
        return tuple(sorted({*self.guests.values(), *self._others}))

    def _keep(self) -> None:
        away.keep(self.fleet.opts, self.host, self.guests)

    def uuid_of(self, name: str) -> str | None:
        """Of the guest that left under this name."""
        return next((uuid for uuid, one in self.guests.items() if one == name), None)

    def observed(self, seen: MigrationLocations) -> dict[str, Observed]:
        """UUID to where the guest is by what all hosts said."""
        return {uuid: self._observed(seen, uuid) for uuid in self.guests}

    def settle(self, outcome: MovesOutcome) -> None:
        """Asks all hosts what became of those that are said to be left, whose answer may have been
        lost, or that somebody else moved or removed; record and outcome say what was observed.
        Another guest of the same name may have left before. Of a guest on its way the old host
        alone knows that, so a guest is elsewhere only if that host was heard.
        """
        said = {uuid for uuid, name in self.guests.items() if name in outcome.left}
        if not said:
            return
        seen = locations(self.fleet)
        for uuid in said:
            name, found = self.guests[uuid], self._observed(seen, uuid)
            if found.is_back(self.host):
                self.forget([uuid])
            elif uuid not in self._leaving:
                continue
            elif found.is_gone:
                self.forget([uuid])
                del outcome.left[name]
            elif self.host in seen.hosts and found.is_away(self.host):
                new, called = next(iter(found.hosts.items()))
                KeyStore(self.fleet.opts).moved(called, self.host, new)
                outcome.moved[name] = new
                del outcome.left[name]

    def _observed(self, seen: MigrationLocations, uuid: str) -> Observed:
        name, hosts = self.guests[uuid], {}
        for host, said in seen.hosts.items():
            for one in said.guests:
                told = None if uuid == name else said.uuids.get(one)
                if uuid == told or (told is None and one == name):
                    hosts[host] = one
        moving = bool({name, *hosts.values()} & set(seen.unfinished))
        return Observed(hosts, moving, seen.unreachable_text())

    def is_at_home(self, uuid: str, found: Observed) -> bool:
        """Whether the guest is back on a host from which it was away when it left this one."""
        homes = away.homes(self.fleet.opts, self.host).get(uuid, [])
        return any(found.is_back(home) for home in homes)

    def forget(self, uuids: Iterable[str]) -> None:
        """These are not away."""
        for uuid in uuids:
            self.guests.pop(uuid, None)
