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
    StateDescription(UNKNOWN, "nothing was heard of it since high availability was set up"),
    StateDescription(UP, "its agent is heard; guests are placed there"),
    StateDescription(SUSPECTED, "the leader does not hear it; nothing is done to it"),
    StateDescription(
        FENCING, "a majority is asked to give it up, then its fences, and its watchdog's time"
    ),
    StateDescription(
        FENCED, "it is proven that none of its guests runs; they are started elsewhere"
    ),
    StateDescription(
        RETURNING, "it is heard again, and gets no guest before it has dropped stale ones"
    ),
    StateDescription(MAINTENANCE, "a person wants its guests elsewhere"),
    StateDescription(REST, "its agent stopped in order: its guests wait for it, it is not fenced"),
)
GUEST_STATES = (
    StateDescription(NEW, "it is not known yet whether it runs"),
    StateDescription(PLACED, "it runs where it is to run, or is on its way there live"),
    StateDescription(
        RECOVERING, "it is being started, or waits for the proof that it runs nowhere"
    ),
    StateDescription(
        BLOCKED, "it is down, or may be: a proof or room is missing, as the reason says"
    ),
    StateDescription(ERROR, "all its tries failed: it waits for a person to stop and start it"),
    StateDescription(STOPPED, "it is to be down"),
    StateDescription(IGNORED, "nothing is done to it"),
)

HOSTS = (
    HostRow((UNKNOWN, REST, SUSPECTED, FENCING), hosts.is_confirmed, FENCED,
            "a person said that it is off", hosts.give_up),
    HostRow((FENCING,), hosts.is_off, FENCED, "its fence says that it is off", hosts.give_up),
    HostRow((FENCING,), hosts.watchdog_fired, FENCED, "its watchdog must have cut its power",
            hosts.give_up),
    HostRow((UP, MAINTENANCE, REST, SUSPECTED, FENCING, FENCED, RETURNING), hosts.has_booted,
            RETURNING, "it has booted again", hosts.know),
    HostRow((UP, MAINTENANCE, SUSPECTED, RETURNING), hosts.rests, REST,
            "its agent has stopped in order"),
    HostRow((FENCING,), hosts.rests, REST, "its agent has stopped in order", hosts.release),
    HostRow((UNKNOWN,), hosts.is_heard, RETURNING, "it is heard", hosts.know),
    HostRow((REST,), hosts.is_heard, RETURNING, "its agent works again", hosts.know),
    HostRow((SUSPECTED,), hosts.is_heard, UP, "it is heard again"),
    HostRow((FENCING,), hosts.is_heard, UP, "it is heard again", hosts.release),
    HostRow((UNKNOWN, UP, MAINTENANCE, RETURNING), hosts.is_silent, SUSPECTED,
            "nothing is heard of it"),
    HostRow((UP,), hosts.in_maintenance, MAINTENANCE, "a person wants it empty"),
    HostRow((MAINTENANCE,), hosts.not_maintained, UP, "its maintenance has ended"),
    HostRow((SUSPECTED,), hosts.is_to_be_fenced, FENCING, "a majority does not hear it",
            hosts.ask_votes),
    HostRow((FENCING,), hosts.is_disarmed, SUSPECTED, "high availability was disarmed",
            hosts.release),
    HostRow((FENCING,), hosts.is_heard_by_others, SUSPECTED, "others hear it again", hosts.release),
    HostRow((RETURNING,), hosts.is_clean, UP, "no guest that lives elsewhere is defined there"),
)  # fmt: skip

_MANAGED = (PLACED, RECOVERING, BLOCKED, STOPPED, ERROR)
_DESIRED_UP = (PLACED, RECOVERING, BLOCKED)
_DOWN = (RECOVERING, BLOCKED)

GUESTS = (
    GuestRow((NEW,), desired.is_there, PLACED, "it runs there already", desired.adopt),
    GuestRow((NEW,), desired.is_nowhere, RECOVERING, "its host says that it does not run",
             desired.free),
    GuestRow((NEW,), desired.is_unseen, NEW, "its host is silent, and may run it", desired.assume),
    GuestRow((NEW,), failover.has_lost_its_host, RECOVERING, "it is proven that it runs nowhere",
             failover.leave),
    GuestRow(_MANAGED, desired.is_ignored, IGNORED, "a person wants it so"),
    GuestRow((IGNORED,), desired.is_noticed_anew, NEW, "it is looked for where a person left it",
             desired.rediscover),
    GuestRow((IGNORED,), desired.is_noticed, RECOVERING, "it is no longer ignored"),
    GuestRow((*_DESIRED_UP, ERROR), desired.is_to_stop, STOPPED, "it is to be stopped",
             desired.halt),
    GuestRow((STOPPED,), desired.is_to_start, RECOVERING, "it is to be started", desired.resume),
    GuestRow((STOPPED,), desired.was_left, STOPPED, "it is down", failover.leave),
    GuestRow(_DESIRED_UP, migrating.has_arrived, PLACED, "it has migrated", migrating.arrive),
    GuestRow(_DESIRED_UP, failover.has_lost_its_host, RECOVERING,
             "it is proven that it runs nowhere", failover.leave),
    GuestRow(_DESIRED_UP, migrating.is_lost_between, RECOVERING, "it was lost while it migrated",
             failover.release),
    GuestRow(_DESIRED_UP, migrating.came_back, PLACED, "its migration failed",
             migrating.turn_back),
    GuestRow(_DESIRED_UP, migrating.lost_its_target, PLACED, "the target of its migration is gone",
             migrating.turn_back),
    GuestRow((PLACED,), failover.is_in_doubt, BLOCKED, "its host is silent",
             detail=failover.doubt),
    GuestRow((PLACED,), failover.awaits_proof, RECOVERING, "its host is being fenced"),
    GuestRow(_DESIRED_UP, failover.is_left, RECOVERING, "its host shuts down", failover.release),
    GuestRow(_DESIRED_UP, migrating.did_not_start_there, RECOVERING,
             "it did not start on the better host", migrating.go_again,
             detail=migrating.going_back_reason),
    GuestRow(_DESIRED_UP, failing.waits_for_storage, BLOCKED,
             "its storage is full: no restart mends that", detail=failing.storage_obstacle),
    GuestRow(_DESIRED_UP, failing.may_restart, RECOVERING, "it failed: once more in place",
             failing.restart, detail=failing.restart_reason),
    GuestRow(_DESIRED_UP, failing.may_relocate, RECOVERING, "it failed: once more elsewhere",
             failing.relocate, detail=failing.relocate_reason),
    GuestRow(_DESIRED_UP, failing.has_failed, ERROR, "it failed as often as it may", failing.fail,
             detail=failing.failed_reason),
    GuestRow((PLACED, RECOVERING), failover.has_no_storage, RECOVERING,
             "its host lost its storage", failover.pull),
    GuestRow((PLACED,), migrating.is_where_requested, PLACED, "it is where a person wants it",
             migrating.complete_request),
    GuestRow((PLACED,), migrating.is_to_relocate, RECOVERING, "a person wants it elsewhere",
             migrating.relocate_to),
    GuestRow((PLACED,), migrating.is_to_migrate, PLACED, "it is better elsewhere", migrating.send),
    GuestRow((PLACED,), migrating.is_to_restart_there, RECOVERING,
             "it goes to a better host by a stop and a start", migrating.restart_there),
    GuestRow((PLACED,), failing.is_stable, PLACED, "it ran well for long", failing.forgive),
    GuestRow(_DOWN, placing.runs, PLACED, "it runs", placing.settle),
    GuestRow(_DOWN, failover.has_lease, RECOVERING, "another host got the lease of its disks",
             failover.leave),
    *(
        GuestRow((state,), failover.may_ask_for_lease, state, "the lease of its disks is asked for",
                 failover.ask, detail=failover.doubt)
        for state in _DOWN
    ),
    GuestRow(_DOWN, placing.has_room, RECOVERING, "it gets a place", placing.assign),
    GuestRow(_DOWN, placing.has_no_room, BLOCKED, "no host takes it",
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
