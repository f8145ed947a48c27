"""A guest as the leader sees it: its host, its copy on that host, and the places where a copy of it
may still run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from saltvirt.ha.model import host_states, safety
from saltvirt.ha.model.messages import ALIVE, GuestStatus, Heartbeat
from saltvirt.ha.model.registry import (
    IGNORED,
    MAINTENANCE,
    REST,
    RETURNING,
    UP,
    GuestLocation,
    HaGuestRecord,
    HostRecord,
    Registry,
)
from saltvirt.ha.model.view import GuestConfig, MasterState, View

if TYPE_CHECKING:
    from saltvirt.ha.model.host_capacity import HostCapacity


@dataclass(frozen=True)
class GuestCase:
    """One guest, as the leader sees it now: the argument of the conditions of the table in
    ``transitions``, and of its changes of records."""

    name: str
    record: HaGuestRecord
    config: GuestConfig
    registry: Registry
    state: MasterState
    view: View
    capacity: HostCapacity
    now_s: float

    def beat(self, host: str, boot: int) -> Heartbeat | None:
        """Return the last heartbeat of the host in that boot, or None."""
        arrived = self.view.beats.get(host)
        return arrived.beat if arrived and arrived.beat.boot == boot else None

    @cached_property
    def host_beat(self) -> Heartbeat | None:
        """Return the last heartbeat of the host that is to run the guest, or None."""
        return self.beat(self.record.host, self.record.boot)

    @property
    def status(self) -> GuestStatus | None:
        """Return the guest's status as its host reports it, or None."""
        return self.host_beat.guests.get(self.name) if self.host_beat else None

    @property
    def host(self) -> HostRecord:
        return self.registry.host(self.record.host)

    @cached_property
    def locations(self) -> tuple[GuestLocation, ...]:
        """Return the locations where a copy of the guest may still run."""
        return tuple(location for location in self.record.locations if not self._cleared(location))

    def _cleared(self, location: GuestLocation) -> bool:
        host = self.registry.host(location.host)
        host_state = host_states.believed_state(location.host, self.state, self.view)
        proven = safety.is_gone(location, host) or safety.boot_proves(location, host.boot)
        is_down = safety.is_shut_down(location, host_state) and not host_state.freeze
        return proven or is_down or (not self._is_own(location) and self._is_given_back(location))

    def _is_own(self, location: GuestLocation) -> bool:
        """Return whether the guest is to run at the location or to migrate there. No agent starts a
        guest that is ignored."""
        if self.record.state == IGNORED:
            return False
        record, host_boot = self.record, (location.host, location.boot)
        comes = host_boot == (record.target, record.target_boot)
        return comes or (record.run and host_boot == (record.host, record.boot))

    def _is_given_back(self, location: GuestLocation) -> bool:
        beat = self.beat(location.host, location.boot or self.registry.host(location.host).boot)
        is_committed = self.registry.version <= self.state.committed
        return (
            is_committed and beat is not None and safety.is_released(self.record, self.name, beat)
        )

    @property
    def location_states(self) -> list[str]:
        """Return the states of the hosts where a copy of the guest may still run."""
        return [self.registry.host(location.host).state for location in self.locations]

    @property
    def is_held(self) -> bool:
        """Return whether the guest may still run on its host."""
        return any(location.host == self.record.host for location in self.locations)

    @property
    def own_status(self) -> GuestStatus | None:
        """Return the status that the guest's host, which is heard, reports of the guest's current
        start. Return None if the host reports none, or if a migration is in progress."""
        status, record = self.status, self.record
        is_settled = record.run and not record.target and self.host.state in (UP, MAINTENANCE)
        return (
            status if is_settled and status is not None and status.epoch == record.epoch else None
        )

    def misses_storage(self, for_s: float) -> bool:
        """Return whether the guest's host, which is heard, has not reached the guest's storage for
        this time (for_s)."""
        silent_s = self.view.storage_silent_s(self.host_beat, self.name) if self.host_beat else None
        return silent_s is not None and silent_s >= for_s

    @property
    def leaving_beat(self) -> Heartbeat | None:
        """Return the last heartbeat of the guest's host if the host wants its guests to leave;
        otherwise None."""
        beat = self.host_beat
        return beat if beat and beat.leaves else None

    @property
    def is_coming(self) -> bool:
        """Return whether the target of the guest's migration reports that the guest runs there or
        is arriving."""
        beat = self.beat(self.record.target, self.record.target_boot)
        status = beat.guests.get(self.name) if beat else None
        is_target = GuestLocation(self.record.target, self.record.target_boot) in self.locations
        return is_target and status is not None and status.state in ALIVE

    def requested_host(self, kind: str) -> str:
        """Return the host to which an operator asked to move the guest in this way (kind), if the
        request is not fulfilled yet and the host accepts guests; otherwise ""."""
        request = self.view.relocations.get(self.name)
        host = (
            request.host
            if request and request.kind == kind and request.number > self.record.last_request
            else ""
        )
        return "" if self.capacity.usable(host, self.name) else host

    @cached_property
    def choice(self) -> tuple[str, str]:
        """Return (the host that the guest gets, or ""; why it gets none)."""
        record, capacity = self.record, self.capacity
        last = self.registry.host(record.last)
        if last.state in (REST, RETURNING) and not record.failed and not record.better:
            return "", f"it waits for {record.last}: {last.reason}"
        ranked, reason = capacity.ranked(self.name, record.failed)
        if not ranked and record.failed:
            ranked, reason = capacity.ranked(self.name)
        if record.better in ranked:
            ranked = [record.better]
        free = [host for host in ranked if not capacity.is_busy(host)]
        if free:
            return free[0], ""
        if ranked:
            reason = f"{', '.join(ranked)}: the maximum number of guests is already starting"
        return "", reason


def last_epoch(record: HaGuestRecord) -> int:
    """Return the last epoch that was given to any start or migration of the guest: a migration has
    the epoch after that of the record."""
    return record.epoch + bool(record.target)


def let_go(record: HaGuestRecord, gentle: bool) -> HaGuestRecord:
    """Return the record of a guest that is to leave its host and gets another one. gentle: the
    guest is shut down there, not killed."""
    return replace(
        record, host="", run=False, target="", gentle=gentle, last=record.host,
        epoch=last_epoch(record),
    )  # fmt: skip


def hosts_failed(record: HaGuestRecord) -> tuple[str, ...]:
    """Return the hosts on which the guest failed, its present host included."""
    return tuple(sorted({*record.failed, record.host}))
