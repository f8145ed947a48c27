"""A guest as the leader sees it: its host, its copy there, where a copy of it may run still."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from saltvirt.ha import pledges, safety
from saltvirt.ha.facts import ALIVE, Beat, GuestThere
from saltvirt.ha.registry import (
    IGNORED,
    MAINTENANCE,
    UP,
    GuestPlace,
    GuestRecord,
    HostRecord,
    Registry,
)
from saltvirt.ha.view import GuestWanted, MasterState, View

if TYPE_CHECKING:
    from saltvirt.ha.place import Room


@dataclass
class GuestSeen:
    """One guest, as the leader sees it now. why: the reason that a condition found."""

    name: str
    record: GuestRecord
    wanted: GuestWanted
    registry: Registry
    state: MasterState
    view: View
    room: Room
    now_s: float
    why: str = ""

    def beat(self, host: str, boot: int) -> Beat | None:
        """The last beat of that boot of a host."""
        arrived = self.view.beats.get(host)
        return arrived.beat if arrived and arrived.beat.boot == boot else None

    @cached_property
    def here(self) -> Beat | None:
        """The last beat of the host that is to have it."""
        return self.beat(self.record.host, self.record.boot)

    @property
    def there(self) -> GuestThere | None:
        """What its host says of it."""
        return self.here.guests.get(self.name) if self.here else None

    @property
    def host(self) -> HostRecord:
        return self.registry.host(self.record.host)

    @cached_property
    def places(self) -> tuple[GuestPlace, ...]:
        """Where a copy may run still."""
        return tuple(place for place in self.record.places if not self._cleared(place))

    def _cleared(self, place: GuestPlace) -> bool:
        host = self.registry.host(place.host)
        pledge = pledges.of(place.host, self.state, self.view)
        proven = safety.is_gone(place, host) or safety.boot_proves(place, host.boot)
        over = safety.is_over(place, pledge) and not pledge.freeze
        return proven or over or (not self._is_own(place) and self._is_given_back(place))

    def _is_own(self, place: GuestPlace) -> bool:
        """It is to run there, or to come there. One that is ignored no agent starts."""
        if self.record.state == IGNORED:
            return False
        record, at = self.record, (place.host, place.boot)
        comes = at == (record.target, record.target_boot)
        return comes or (record.run and at == (record.host, record.boot))

    def _is_given_back(self, place: GuestPlace) -> bool:
        beat = self.beat(place.host, place.boot or self.registry.host(place.host).boot)
        known = self.registry.version <= self.state.committed
        return known and beat is not None and safety.is_released(self.record, self.name, beat)

    @property
    def is_held(self) -> bool:
        """Its host is still one at which it may run."""
        return any(place.host == self.record.host for place in self.places)

    def _own(self) -> GuestThere | None:
        """What its host, which is heard, says of the start that it is to have."""
        there, record = self.there, self.record
        known = record.run and not record.target and self.host.state in (UP, MAINTENANCE)
        return there if known and there is not None and there.epoch == record.epoch else None

    def _misses_storage(self, for_s: float) -> bool:
        """Its host, which is heard, has not reached the guests' storage for so long."""
        silent_s = self.view.storage_silent_s(self.here, self.name) if self.here else None
        return silent_s is not None and silent_s >= for_s

    def _leaving(self) -> Beat | None:
        """The last beat of its host, where that wants to be rid of its guests."""
        beat = self.here
        return beat if beat and beat.leaves else None

    def _is_coming(self) -> bool:
        """The target of its migration says that it is there, or on its way."""
        beat = self.beat(self.record.target, self.record.target_boot)
        there = beat.guests.get(self.name) if beat else None
        known = GuestPlace(self.record.target, self.record.target_boot) in self.places
        return known and there is not None and there.state in ALIVE

    def _wish(self, kind: str) -> str:
        """The host where a person wants it in this way, not followed yet, if that takes guests."""
        wish = self.view.wishes.get(self.name)
        host = wish.host if wish and wish.kind == kind and wish.number > self.record.wish else ""
        return "" if self.room.usable(host, self.name) else host


def unused(record: GuestRecord) -> int:
    """The last epoch that was given to anybody: a migration has the one after the record's."""
    return record.epoch + bool(record.target)
