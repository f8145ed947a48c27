"""The states of guests that operators request, and how a new guest becomes known: conditions and
changes of the table of guests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha.model.guest_case import last_epoch
from saltvirt.ha.model.messages import ALIVE
from saltvirt.ha.model.registry import (
    FENCED,
    MAINTENANCE,
    SUSPECTED,
    UP,
    GuestLocation,
    HaGuestRecord,
)
from saltvirt.ha.model.view import IGNORED, STARTED
from saltvirt.ha.model.view import STOPPED as DESIRED_STOPPED

if TYPE_CHECKING:
    from saltvirt.ha.model.guest_case import GuestCase
    from saltvirt.ha.model.messages import GuestStatus, Heartbeat


def already_runs(case: GuestCase) -> bool:
    status = _first(case)
    return status is not None and status.state in ALIVE


def does_not_run(case: GuestCase) -> bool:
    beat = _first_beat(case)
    return not case.config.host or (beat is not None and not already_runs(case))


def host_is_silent(case: GuestCase) -> bool:
    host = case.registry.host(case.config.host)
    return host.state in (SUSPECTED, FENCED) and not case.record.last


def _first_beat(case: GuestCase) -> Heartbeat | None:
    host = case.registry.host(case.config.host)
    if host.state not in (UP, MAINTENANCE):
        return None
    beat = case.beat(case.config.host, host.boot)
    # a host reports a guest, or its absence, once it acts on a registry that names the guest
    return beat if beat and beat.applied >= case.record.changed > 0 else None


def _first(case: GuestCase) -> GuestStatus | None:
    beat = _first_beat(case)
    return beat.guests.get(case.name) if beat else None


def _first_epoch(case: GuestCase) -> int:
    """Return the epoch above which the guest's epochs continue: no epoch is used again, not even
    one that was used before the guest was ignored."""
    status = _first(case)
    return max(case.record.epoch, status.epoch if status else 0)


def is_ignored(case: GuestCase) -> bool:
    return case.config.desired_state == IGNORED


def is_managed_again(case: GuestCase) -> bool:
    return not is_ignored(case)


def is_to_be_located(case: GuestCase) -> bool:
    """Return whether the guest is no longer ignored and no location is left from before it was
    ignored. An operator may have started the guest meanwhile."""
    return is_managed_again(case) and not case.locations


def is_to_stop(case: GuestCase) -> bool:
    return case.config.desired_state == DESIRED_STOPPED


def is_to_start(case: GuestCase) -> bool:
    return case.config.desired_state == STARTED


def is_shut_off(case: GuestCase) -> bool:
    return case.locations != case.record.locations


# changes of the record


def rediscover(_case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    """Return a record as for a new guest, but with the guest's epoch and the number of its last
    fulfilled request."""
    return HaGuestRecord(
        record.state, record.reason, last_epoch(record), changed=record.changed,
        last_request=record.last_request, agent_silent_s=record.agent_silent_s,
    )  # fmt: skip


def adopt(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    boot = case.registry.host(case.config.host).boot
    return replace(
        record, epoch=_first_epoch(case) + 1, host=case.config.host, boot=boot, run=True,
        locations=(GuestLocation(case.config.host, boot),), last=case.config.host,
    )  # fmt: skip


def free(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    return replace(record, last=case.config.host, locations=(), epoch=_first_epoch(case))


def assume(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    host, boot = case.config.host, case.registry.host(case.config.host).boot
    return replace(record, locations=(GuestLocation(host, boot),), last=host)


def halt(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    return replace(
        record, run=False, gentle=True, target="", locations=case.locations,
        epoch=last_epoch(record), taker="", better="",
    )  # fmt: skip


def resume(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    return replace(
        record, host="", run=False, restarts=0, relocates=0, failed=(), locations=case.locations,
        origin="", refused=(), turned=0,
    )  # fmt: skip
