"""The decision tables: the states of hosts and guests, and the transitions between them.

The code uses these rows, and ha-design.md shows them (make docs). Of a state's rows, the first row
whose condition holds is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from saltvirt.ha.model import guest_desired as desired
from saltvirt.ha.model import guest_failing as failing
from saltvirt.ha.model import guest_failover as failover
from saltvirt.ha.model import guest_migrating as migrating
from saltvirt.ha.model import guest_placing as placing
from saltvirt.ha.model import hosts
from saltvirt.ha.model.guest_case import GuestCase
from saltvirt.ha.model.hosts import HostCase
from saltvirt.ha.model.registry import (
    BLOCKED,
    ERROR,
    FENCED,
    FENCING,
    IGNORED,
    MAINTENANCE,
    NEW,
    PLACED,
    RECOVERING,
    REST,
    RETURNING,
    STOPPED,
    SUSPECTED,
    UNKNOWN,
    UP,
    HaGuestRecord,
    HostRecord,
)


class HostRow(NamedTuple):
    """A transition of a host from one of the states, if the condition holds, to another state, with
    the reason. change: what changes in the record in addition to its state; it takes the version of
    the registry that will contain the record."""

    states: tuple[str, ...]
    condition: Callable[[HostCase], bool]
    to: str
    reason: str
    change: Callable[[HostCase, HostRecord, int], HostRecord] = hosts.unchanged

    def apply(self, case: HostCase, version: int) -> HostRecord:
        """Return the record after the transition. version: that of the registry that will contain
        the record."""
        record = replace(case.record, state=self.to, reason=self.reason, stuck=False)
        return self.change(case, record, version)


class GuestRow(NamedTuple):
    """A transition of a guest from one of the states, if the condition holds, to another state,
    with the reason. change: what changes in the record in addition to its state. detail: the reason
    for this guest, which replaces the reason."""

    states: tuple[str, ...]
    condition: Callable[[GuestCase], bool]
    to: str
    reason: str
    change: Callable[[GuestCase, HaGuestRecord], HaGuestRecord] = placing.unchanged
    detail: Callable[[GuestCase], str] | None = None

    def apply(self, case: GuestCase, version: int) -> HaGuestRecord:
        """Return the record after the transition. version: that of the registry that will contain
        the record."""
        reason = (self.detail(case) if self.detail else "") or self.reason
        record = replace(case.record, state=self.to, reason=reason, changed=version)
        return self.change(case, record)


RowT = TypeVar("RowT", HostRow, GuestRow)


def by_state(rows: Iterable[RowT]) -> dict[str, list[RowT]]:
    """Return the rows of each state, in their order."""
    table: dict[str, list[RowT]] = {}
    for row in rows:
        for state in row.states:
            table.setdefault(state, []).append(row)
    return table


@dataclass(frozen=True)
class StateDescription:
    """A state, and a description for operators."""

    name: str
    description: str


HOST_STATES = (
    StateDescription(UNKNOWN, "no heartbeat was received since high availability was set up"),
    StateDescription(UP, "its agent sends heartbeats; guests are placed on it"),
    StateDescription(SUSPECTED, "the leader receives no heartbeats from it; nothing is done yet"),
    StateDescription(
        FENCING, "a majority votes to give it up; then it is fenced, or its watchdog resets it"
    ),
    StateDescription(
        FENCED, "it is proven that none of its guests runs; they are started on other hosts"
    ),
    StateDescription(
        RETURNING,
        "it sends heartbeats again; it gets guests after it has removed outdated definitions",
    ),
    StateDescription(MAINTENANCE, "it is in maintenance; its guests are migrated to other hosts"),
    StateDescription(
        REST, "its agent was stopped cleanly; its guests wait for it, and it is not fenced"
    ),
)
GUEST_STATES = (
    StateDescription(NEW, "it is not known yet whether it runs"),
    StateDescription(PLACED, "it runs on its host, or is migrated live"),
    StateDescription(
        RECOVERING, "it is being started, or waits for the proof that it does not run anywhere"
    ),
    StateDescription(
        BLOCKED, "it is down, or may be; a proof or capacity is missing, see the reason"
    ),
    StateDescription(
        ERROR, "all attempts failed; to start it again, request `stopped`, then `started`"
    ),
    StateDescription(STOPPED, "its desired state is stopped"),
    StateDescription(IGNORED, "high availability does not manage it at present"),
)

HOSTS = (
    HostRow((UNKNOWN, REST, SUSPECTED, FENCING), hosts.is_confirmed, FENCED,
            "an operator confirmed that it is off", hosts.give_up),
    HostRow((FENCING,), hosts.is_off, FENCED, "its fence agent reports that it is off",
            hosts.give_up),
    HostRow((FENCING,), hosts.watchdog_fired, FENCED, "its watchdog must have cut its power",
            hosts.give_up),
    HostRow((UP, MAINTENANCE, REST, SUSPECTED, FENCING, FENCED, RETURNING), hosts.has_booted,
            RETURNING, "it has rebooted", hosts.know),
    HostRow((UP, MAINTENANCE, SUSPECTED, RETURNING), hosts.rests, REST,
            "its agent was stopped cleanly"),
    HostRow((FENCING,), hosts.rests, REST, "its agent was stopped cleanly", hosts.release),
    HostRow((UNKNOWN,), hosts.is_heard, RETURNING, "it sends heartbeats", hosts.know),
    HostRow((REST,), hosts.is_heard, RETURNING, "its agent runs again", hosts.know),
    HostRow((SUSPECTED,), hosts.is_heard, UP, "it sends heartbeats again"),
    HostRow((FENCING,), hosts.is_heard, UP, "it sends heartbeats again", hosts.release),
    HostRow((UNKNOWN, UP, MAINTENANCE, RETURNING), hosts.is_silent, SUSPECTED,
            "it sends no heartbeats"),
    HostRow((UP,), hosts.in_maintenance, MAINTENANCE, "maintenance was requested"),
    HostRow((MAINTENANCE,), hosts.has_left_maintenance, UP, "its maintenance has ended"),
    HostRow((SUSPECTED,), hosts.is_to_be_fenced, FENCING,
            "a majority of the hosts receives no heartbeats from it", hosts.ask_votes),
    HostRow((FENCING,), hosts.is_disarmed, SUSPECTED, "high availability was disarmed",
            hosts.release),
    HostRow((FENCING,), hosts.is_heard_by_others, SUSPECTED,
            "other hosts receive its heartbeats again", hosts.release),
    HostRow((RETURNING,), hosts.is_clean, UP,
            "it has no definitions of guests that are on other hosts"),
)  # fmt: skip

_MANAGED = (PLACED, RECOVERING, BLOCKED, STOPPED, ERROR)
_DESIRED_UP = (PLACED, RECOVERING, BLOCKED)
_DOWN = (RECOVERING, BLOCKED)

GUESTS = (
    GuestRow((NEW,), desired.already_runs, PLACED, "it already runs on its host", desired.adopt),
    GuestRow((NEW,), desired.does_not_run, RECOVERING, "its host reports that it does not run",
             desired.free),
    GuestRow((NEW,), desired.host_is_silent, NEW, "its host is silent and may run it",
             desired.assume),
    GuestRow((NEW,), failover.has_lost_its_host, RECOVERING,
             "it is proven that it does not run anywhere", failover.leave),
    GuestRow(_MANAGED, desired.is_ignored, IGNORED, "ignored by request of an operator"),
    GuestRow((IGNORED,), desired.is_to_be_located, NEW,
             "it is no longer ignored; its host is asked for its state", desired.rediscover),
    GuestRow((IGNORED,), desired.is_managed_again, RECOVERING, "it is no longer ignored"),
    GuestRow((*_DESIRED_UP, ERROR), desired.is_to_stop, STOPPED, "its desired state is stopped",
             desired.halt),
    GuestRow((STOPPED,), desired.is_to_start, RECOVERING, "its desired state is started",
             desired.resume),
    GuestRow((STOPPED,), desired.is_shut_off, STOPPED, "it is down", failover.leave),
    GuestRow(_DESIRED_UP, migrating.has_arrived, PLACED, "its migration has completed",
             migrating.arrive),
    GuestRow(_DESIRED_UP, failover.has_lost_its_host, RECOVERING,
             "it is proven that it does not run anywhere", failover.leave),
    GuestRow(_DESIRED_UP, migrating.was_lost_in_migration, RECOVERING,
             "it was lost during its migration", failover.release),
    GuestRow(_DESIRED_UP, migrating.migration_failed, PLACED, "its migration failed",
             migrating.turn_back),
    GuestRow(_DESIRED_UP, migrating.lost_its_target, PLACED,
             "the target host of its migration failed", migrating.turn_back),
    GuestRow((PLACED,), failover.is_in_doubt, BLOCKED, "its host is silent", detail=failover.doubt),
    GuestRow((PLACED,), failover.awaits_proof, RECOVERING, "its host is being fenced"),
    GuestRow(_DESIRED_UP, failover.host_shuts_down, RECOVERING, "its host is shutting down",
             failover.release),
    GuestRow(_DESIRED_UP, migrating.failed_on_better_host, RECOVERING,
             "it did not start on the preferred host", migrating.go_back,
             detail=migrating.going_back_reason),
    GuestRow(_DESIRED_UP, failing.waits_for_storage, BLOCKED,
             "its storage is full; a restart would not help", detail=failing.storage_obstacle),
    GuestRow(_DESIRED_UP, failing.may_restart, RECOVERING,
             "it failed; it is restarted on the same host", failing.restart,
             detail=failing.restart_reason),
    GuestRow(_DESIRED_UP, failing.may_relocate, RECOVERING,
             "it failed; it is started on another host", failing.relocate,
             detail=failing.relocate_reason),
    GuestRow(_DESIRED_UP, failing.has_failed, ERROR, "it failed; no attempts are left",
             failing.fail, detail=failing.failed_reason),
    GuestRow((PLACED, RECOVERING), failover.has_no_storage, RECOVERING,
             "its host lost access to its storage", failover.pull),
    GuestRow((PLACED,), migrating.is_where_requested, PLACED,
             "it already runs on the requested host", migrating.complete_request),
    GuestRow((PLACED,), migrating.is_to_relocate, RECOVERING, "an operator requested another host",
             migrating.relocate_to),
    GuestRow((PLACED,), migrating.is_to_migrate, PLACED, "it is migrated to another host",
             migrating.send),
    GuestRow((PLACED,), migrating.is_to_restart_elsewhere, RECOVERING,
             "it is shut down here and started on a preferred host", migrating.restart_there),
    GuestRow((PLACED,), failing.is_stable, PLACED, "it has run without problems", failing.forgive),
    GuestRow(_DOWN, placing.runs, PLACED, "it runs", placing.settle),
    GuestRow(_DOWN, failover.has_lease, RECOVERING, "another host holds the lease of its disks",
             failover.leave),
    *(
        GuestRow((state,), failover.may_ask_for_lease, state, "the lease of its disks is requested",
                 failover.ask, detail=failover.doubt)
        for state in _DOWN
    ),
    GuestRow(_DOWN, placing.can_be_placed, RECOVERING, "a host was selected for it",
             placing.assign),
    GuestRow(_DOWN, placing.cannot_be_placed, BLOCKED, "no host can run it",
             detail=placing.no_room_reason),
    GuestRow(_DOWN, failover.is_in_doubt, BLOCKED, "its host is silent", detail=failover.doubt),
    GuestRow((BLOCKED,), failover.awaits_proof, RECOVERING, "its host is being fenced"),
)  # fmt: skip

_HOST_ROWS, _GUEST_ROWS = by_state(HOSTS), by_state(GUESTS)


def next_host_row(case: HostCase) -> HostRow | None:
    """Return the row of the table whose condition holds now, or None."""
    rows = _HOST_ROWS.get(case.record.state, ())
    return next((row for row in rows if row.condition(case)), None)


def next_guest_row(case: GuestCase) -> GuestRow | None:
    """Return the row of the table whose condition holds now, or None."""
    rows = _GUEST_ROWS.get(case.record.state, ())
    return next((row for row in rows if row.condition(case)), None)
