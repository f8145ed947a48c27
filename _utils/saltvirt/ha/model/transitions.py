"""The decision tables: the states of hosts and guests, and the transitions between them.

The code uses these rows, and ha-design.md shows them (make docs). Of a state's rows, the first row
whose condition holds is used. Conditions and actions are the methods of ``hosts.HostCase`` and
``guests.GuestCase`` with these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
)


@dataclass(frozen=True)
class Row:
    """A transition from a state, if the condition holds, to another state, with the reason. action:
    the change of the record in addition to its state."""

    state: str
    condition: str
    to: str
    reason: str
    action: str = "unchanged"


def by_state(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of each state, in their order."""
    table: dict[str, list[Row]] = {}
    for row in rows:
        table.setdefault(row.state, []).append(row)
    return table


def first(table: Mapping[str, list[Row]], state: str, case: object) -> Row | None:
    """Return the first row whose condition holds now, or None. table: see by_state. case: the
    object whose methods are the conditions."""
    for row in table.get(state, ()):
        if getattr(case, row.condition)():
            return row
    return None


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
    Row(UNKNOWN, "is_confirmed", FENCED, "a person said that it is off", "give_up"),
    Row(UNKNOWN, "is_heard", RETURNING, "it is heard", "know"),
    Row(UNKNOWN, "is_silent", SUSPECTED, "nothing is heard of it"),
    Row(UP, "has_booted", RETURNING, "it has booted again", "know"),
    Row(UP, "rests", REST, "its agent has stopped in order"),
    Row(UP, "is_silent", SUSPECTED, "nothing is heard of it"),
    Row(UP, "in_maintenance", MAINTENANCE, "a person wants it empty"),
    Row(MAINTENANCE, "has_booted", RETURNING, "it has booted again", "know"),
    Row(MAINTENANCE, "rests", REST, "its agent has stopped in order"),
    Row(MAINTENANCE, "is_silent", SUSPECTED, "nothing is heard of it"),
    Row(MAINTENANCE, "not_maintained", UP, "its maintenance has ended"),
    Row(REST, "is_confirmed", FENCED, "a person said that it is off", "give_up"),
    Row(REST, "has_booted", RETURNING, "it has booted again", "know"),
    Row(REST, "works", RETURNING, "its agent works again", "know"),
    Row(SUSPECTED, "is_confirmed", FENCED, "a person said that it is off", "give_up"),
    Row(SUSPECTED, "has_booted", RETURNING, "it has booted again", "know"),
    Row(SUSPECTED, "rests", REST, "its agent has stopped in order"),
    Row(SUSPECTED, "is_heard", UP, "it is heard again"),
    Row(SUSPECTED, "is_to_be_fenced", FENCING, "a majority does not hear it", "ask_votes"),
    Row(FENCING, "is_confirmed", FENCED, "a person said that it is off", "give_up"),
    Row(FENCING, "is_off", FENCED, "its fence says that it is off", "give_up"),
    Row(FENCING, "watchdog_fired", FENCED, "its watchdog must have cut its power", "give_up"),
    Row(FENCING, "has_booted", RETURNING, "it has booted again", "know"),
    Row(FENCING, "rests", REST, "its agent has stopped in order", "release"),
    Row(FENCING, "is_heard", UP, "it is heard again", "release"),
    Row(FENCING, "is_disarmed", SUSPECTED, "high availability was disarmed", "release"),
    Row(FENCING, "is_heard_by_others", SUSPECTED, "others hear it again", "release"),
    Row(FENCED, "has_booted", RETURNING, "it has booted again", "know"),
    Row(RETURNING, "has_booted", RETURNING, "it has booted again", "know"),
    Row(RETURNING, "rests", REST, "its agent has stopped in order"),
    Row(RETURNING, "is_silent", SUSPECTED, "nothing is heard of it"),
    Row(RETURNING, "is_clean", UP, "no guest that lives elsewhere is defined there"),
)

_MANAGED = (PLACED, RECOVERING, BLOCKED, STOPPED, ERROR)
_DESIRED_UP = (PLACED, RECOVERING, BLOCKED)

GUESTS = (
    Row(NEW, "is_there", PLACED, "it runs there already", "adopt"),
    Row(NEW, "is_nowhere", RECOVERING, "its host says that it does not run", "free"),
    Row(NEW, "is_unseen", NEW, "its host is silent, and may run it", "assume"),
    Row(NEW, "has_lost_its_host", RECOVERING, "it is proven that it runs nowhere", "leave"),
    *(Row(state, "is_ignored", IGNORED, "a person wants it so") for state in _MANAGED),
    Row(IGNORED, "is_noticed_anew", NEW, "it is looked for where a person left it", "rediscover"),
    Row(IGNORED, "is_noticed", RECOVERING, "it is no longer ignored"),
    *(
        Row(state, "is_to_stop", STOPPED, "it is to be stopped", "halt")
        for state in (*_DESIRED_UP, ERROR)
    ),
    Row(STOPPED, "is_to_start", RECOVERING, "it is to be started", "resume"),
    Row(STOPPED, "was_left", STOPPED, "it is down", "leave"),
    *(
        row
        for state in _DESIRED_UP
        for row in (
            Row(state, "has_arrived", PLACED, "it has migrated", "arrive"),
            Row(state, "has_lost_its_host", RECOVERING, "it is proven that it runs nowhere",
                "leave"),
            Row(state, "is_lost_between", RECOVERING, "it was lost while it migrated", "release"),
            Row(state, "came_back", PLACED, "its migration failed", "turn_back"),
            Row(state, "lost_its_target", PLACED, "the target of its migration is gone",
                "turn_back"),
        )
    ),
    Row(PLACED, "is_in_doubt", BLOCKED, "its host is silent"),
    Row(PLACED, "awaits_proof", RECOVERING, "its host is being fenced"),
    *(
        row
        for state in _DESIRED_UP
        for row in (
            Row(state, "is_left", RECOVERING, "its host shuts down", "release"),
            Row(state, "did_not_start_there", RECOVERING, "it did not start on the better host",
                "go_again"),
            Row(state, "waits_for_storage", BLOCKED, "its storage is full: no restart mends that"),
            Row(state, "may_restart", RECOVERING, "it failed: once more in place", "restart"),
            Row(state, "may_relocate", RECOVERING, "it failed: once more elsewhere", "relocate"),
            Row(state, "has_failed", ERROR, "it failed as often as it may", "fail"),
        )
    ),
    *(
        Row(state, "has_no_storage", RECOVERING, "its host lost its storage", "pull")
        for state in (PLACED, RECOVERING)
    ),
    Row(PLACED, "is_where_requested", PLACED, "it is where a person wants it", "complete_request"),
    Row(PLACED, "is_to_relocate", RECOVERING, "a person wants it elsewhere", "relocate_to"),
    Row(PLACED, "is_to_migrate", PLACED, "it is better elsewhere", "send"),
    Row(PLACED, "is_to_restart_there", RECOVERING, "it goes to a better host by a stop and a start",
        "restart_there"),
    Row(PLACED, "is_stable", PLACED, "it ran well for long", "forgive"),
    *(
        row
        for state in (RECOVERING, BLOCKED)
        for row in (
            Row(state, "runs", PLACED, "it runs", "settle"),
            Row(state, "has_lease", RECOVERING, "another host got the lease of its disks", "leave"),
            Row(state, "may_ask_for_lease", state, "the lease of its disks is asked for", "ask"),
            Row(state, "has_room", RECOVERING, "it gets a place", "assign"),
        )
    ),
    Row(RECOVERING, "has_no_room", BLOCKED, "no host takes it"),
    Row(BLOCKED, "has_no_room", BLOCKED, "no host takes it"),
    Row(RECOVERING, "is_in_doubt", BLOCKED, "its host is silent"),
    Row(BLOCKED, "is_in_doubt", BLOCKED, "its host is silent"),
    Row(BLOCKED, "awaits_proof", RECOVERING, "its host is being fenced"),
)  # fmt: skip
