"""Guests whose host is suspected, has failed, or has lost its storage: conditions and changes of
the table of guests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha.model import safety
from saltvirt.ha.model.guest_case import hosts_failed, last_epoch, let_go
from saltvirt.ha.model.messages import RUNNING, SHUT_DOWN
from saltvirt.ha.model.registry import FENCING, MAINTENANCE, SUSPECTED, UP

if TYPE_CHECKING:
    from saltvirt.ha.model.guest_case import GuestCase
    from saltvirt.ha.model.registry import HaGuestRecord


def has_lost_its_host(case: GuestCase) -> bool:
    """Return whether it is proven that the guest does not run any more at one of its locations:
    that of its host, or that of a host that it left."""
    if case.is_coming:
        return False
    return case.locations != case.record.locations and not (case.record.run and case.is_held)


def doubt(case: GuestCase) -> str:
    """Return which host where the guest may run is silent, while no proof that it is gone exists or
    is to be expected, and why; or ""."""
    for location in case.locations:
        host = case.registry.host(location.host)
        if host.state in (SUSPECTED, FENCING) and host.stuck:
            return f"{location.host} is {host.state}: {host.reason}"
    return ""


def is_in_doubt(case: GuestCase) -> bool:
    return bool(doubt(case))


def awaits_proof(case: GuestCase) -> bool:
    return FENCING in case.location_states and not is_in_doubt(case)


def host_shuts_down(case: GuestCase) -> bool:
    """Return whether the guest's host wants it to leave. A guest that is migrating does not count:
    it is gone from its host before the target reports that it runs there."""
    record, beat, status = case.record, case.leaving_beat, case.status
    if not record.run or record.target or beat is None or not case.registry.armed:
        return False
    runs = status is not None and status.state == RUNNING
    return not (beat.live and runs and beat.phase != SHUT_DOWN)


def has_no_storage(case: GuestCase) -> bool:
    is_active = case.registry.armed and case.host.state in (UP, MAINTENANCE)
    if not case.record.run or not is_active:
        return False
    lost = case.misses_storage(case.view.policy.storage_lost_s)
    return lost and bool(case.capacity.ranked(case.name, [case.record.host])[0])


def _taker(case: GuestCase) -> str:
    ranked, _ = case.capacity.ranked(case.name, [location.host for location in case.locations])
    return ranked[0] if ranked else ""


def may_ask_for_lease(case: GuestCase) -> bool:
    if not case.config.leased or not is_in_doubt(case) or case.record.taker:
        return False
    return set(case.location_states) == {FENCING} and bool(_taker(case))


def has_lease(case: GuestCase) -> bool:
    taker = case.registry.host(case.record.taker)
    beat = case.beat(case.record.taker, taker.boot)
    return beat is not None and safety.lease_proves(case.record, case.name, beat)


# changes of the record


def leave(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    if has_lease(case):
        return replace(record, host="", run=False, locations=(), better=record.taker, taker="")
    return replace(
        record, locations=case.locations, host=record.host if case.is_held else "",
        last=record.host or record.last, run=False, target="", epoch=last_epoch(record), taker="",
    )  # fmt: skip


def pull(_case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    return let_go(replace(record, failed=hosts_failed(record)), gentle=False)


def release(_case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    return let_go(record, gentle=True)


def ask(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    return replace(record, taker=_taker(case))
