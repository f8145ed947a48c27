"""The record of the guests that an evacuation moved away from a host.

This master's record has UUIDs, the host's maintenance mark has names. Both are written only here,
under the host's lock, from observations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.answers.host_calls import MAINTENANCE, MaintenanceRequest
from saltvirt.answers.maintenance import MaintenanceMark
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.journal import evacuated
from saltvirt.operations.move.migrate import MigrationLocations, locations
from saltvirt.operations.move.moves import MovesOutcome
from saltvirt.placement.facts import Guest


@dataclass(frozen=True)
class Observation:
    """Where a guest of the record is. hosts: host to the guest's name there. moving: one of its
    migrations has not ended. silent: the hosts that did not answer, as text."""

    hosts: dict[str, str]
    moving: bool
    silent: str = ""

    def is_back(self, host: str) -> bool:
        """Return whether the guest is on the host and not migrating."""
        return host in self.hosts and len(self.hosts) == 1 and not self.moving

    def is_away(self, host: str) -> bool:
        """Return whether the guest is on other hosts and not migrating."""
        return bool(self.hosts) and host not in self.hosts and not self.moving

    @property
    def is_gone(self) -> bool:
        """Return whether no host has the guest."""
        return not self.silent and not self.hosts


class EvacuationRecord:
    """guests: as evacuated.Guests."""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self.fleet, self.host = fleet, host
        self.guests: evacuated.Guests = {}
        self._foreign_guests: set[str] = set()
        self._leaving: set[str] = set()

    def mark(self) -> MaintenanceMark | None:
        """Return the host's mark. Raises as Fleet.call does."""
        return self._ask(MaintenanceRequest())

    def _ask(self, request: MaintenanceRequest) -> MaintenanceMark | None:
        return MAINTENANCE.ask(self.fleet, self.host, request)

    def _ask_off(self) -> None:
        self._ask(MaintenanceRequest(off=True, guests=self._names()))

    def read(self, mark: MaintenanceMark | None) -> None:
        """Read this master's guests that the host's mark also names; other names stay in the mark.
        If the mark was removed, the record ends, too."""
        named = set(mark.guests) if mark else set()
        saved = evacuated.load(self.fleet.opts, self.host)
        self.guests = {uuid: name for uuid, name in saved.items() if name in named}
        self._foreign_guests = named - set(self.guests.values())

    @property
    def foreign_guests(self) -> set[str]:
        """Return the guests in the mark that this master did not move away."""
        return self._foreign_guests

    def leave(self, guests: Iterable[Guest], reason: str, drained: Iterable[str] = ()) -> None:
        """Record guests that are about to leave. drained: the other hosts in maintenance. Raises
        OperationFailed if the host does not store the mark."""
        leaving = {guest.uuid or guest.name: guest.name for guest in guests}
        self.guests.update(leaving)
        self._leaving.update(leaving)
        evacuated.record_homes(self.fleet.opts, self.host, leaving, drained)
        self.close(reason)

    def close(self, reason: str) -> None:
        """Set the host's mark, so that it accepts no guests. Raises OperationFailed if the host
        does not store the mark."""
        mark = MaintenanceMark(reason, self._names())
        self._store()
        if self._ask(MaintenanceRequest(mark.reason, mark.guests)) != mark:
            raise errors.OperationFailed(
                f"{self.host} did not record its maintenance: it may get new guests"
            )

    def open(self, foreign_guests: Iterable[str] = ()) -> None:
        """Let the host accept guests again; its mark keeps the names of guests that are still away.
        foreign_guests: further names in the mark."""
        self._foreign_guests = set(foreign_guests)
        self._store()
        self._ask_off()

    def write(self) -> MaintenanceMark | None:
        """Write the record without changing whether the host accepts guests. Return the mark that
        the host had."""
        self._store()
        mark = self.mark()
        if (mark.guests if mark else ()) == self._names():
            return mark
        if mark is not None and mark.reason is not None:
            self._ask(MaintenanceRequest(mark.reason, self._names()))
        else:
            self._ask_off()
        return mark

    def _names(self) -> tuple[str, ...]:
        return tuple(sorted({*self.guests.values(), *self._foreign_guests}))

    def _store(self) -> None:
        evacuated.store(self.fleet.opts, self.host, self.guests)

    def uuid_of(self, name: str) -> str | None:
        """Return the UUID of the guest that left under this name."""
        return next((uuid for uuid, guest_name in self.guests.items() if guest_name == name), None)

    def observe_all(self, guest_locations: MigrationLocations) -> dict[str, Observation]:
        """Return UUID to where the guest is, from the answers of all hosts."""
        return {uuid: self._observe(guest_locations, uuid) for uuid in self.guests}

    def settle(self, outcome: MovesOutcome) -> None:
        """Ask all hosts about guests that are reported as unmoved: an answer can be lost, or
        another operation may have moved or removed the guest. The record and the outcome then
        contain what was observed. Another guest of the same name may have left before. Only the old
        host of a migrating guest knows of the migration, so a guest only counts as being elsewhere
        if that host has answered."""
        unmoved_uuids = {uuid for uuid, name in self.guests.items() if name in outcome.unmoved}
        if not unmoved_uuids:
            return
        guest_locations = locations(self.fleet)
        for uuid in unmoved_uuids:
            name, observation = self.guests[uuid], self._observe(guest_locations, uuid)
            if observation.is_back(self.host):
                self.forget([uuid])
            elif uuid not in self._leaving:
                continue
            elif observation.is_gone:
                self.forget([uuid])
                del outcome.unmoved[name]
            elif self.host in guest_locations.hosts and observation.is_away(self.host):
                new, current_name = next(iter(observation.hosts.items()))
                KeyStore(self.fleet.opts).rebind(current_name, self.host, new)
                outcome.moved[name] = new
                del outcome.unmoved[name]

    def _observe(self, guest_locations: MigrationLocations, uuid: str) -> Observation:
        name, hosts = self.guests[uuid], {}
        for host, host_facts in guest_locations.hosts.items():
            for guest_name in host_facts.guests:
                reported_uuid = None if uuid == name else host_facts.uuids.get(guest_name)
                if uuid == reported_uuid or (reported_uuid is None and guest_name == name):
                    hosts[host] = guest_name
        moving = bool({name, *hosts.values()} & set(guest_locations.unfinished))
        return Observation(hosts, moving, guest_locations.unreachable_text())

    def is_at_home(self, uuid: str, observation: Observation) -> bool:
        """Return whether the guest is back on a host from which it was away when it left this
        one."""
        homes = evacuated.homes(self.fleet.opts, self.host).get(uuid, [])
        return any(observation.is_back(home) for home in homes)

    def forget(self, uuids: Iterable[str]) -> None:
        """Remove these guests from the record."""
        for uuid in uuids:
            self.guests.pop(uuid, None)
