"""Guests that get a host, and run there: conditions and changes of the table of guests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha.model import failures, safety
from saltvirt.ha.model.messages import RUNNING
from saltvirt.ha.model.registry import (
    MAINTENANCE,
    UP,
    GuestLocation,
    HaGuestRecord,
)

if TYPE_CHECKING:
    from saltvirt.ha.model.guest_case import GuestCase


def runs(case: GuestCase) -> bool:
    status, record = case.status, case.record
    is_reachable = case.host.state in (UP, MAINTENANCE)
    return bool(
        record.run and is_reachable and status is not None and case.is_held
        and status.state == RUNNING and status.epoch == record.epoch
        and not failures.obstacle(status)
    )  # fmt: skip


def _is_free(case: GuestCase) -> bool:
    """Return whether the guest is to get a host, and no copy of it may still run anywhere."""
    unassigned = not (case.record.host and case.record.run)
    is_exclusive = safety.may_place(replace(case.record, locations=case.locations))
    return unassigned and is_exclusive and case.registry.armed


def can_be_placed(case: GuestCase) -> bool:
    return _is_free(case) and bool(case.choice[0])


def cannot_be_placed(case: GuestCase) -> bool:
    return _is_free(case) and not case.choice[0]


def no_room_reason(case: GuestCase) -> str:
    return case.choice[1]


# changes of the record


def unchanged(_case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    return record


def settle(_case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    home = "" if record.home == record.host else record.home
    return replace(record, better="", origin="", gentle=False, taker="", anew=0, home=home)


def assign(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    host, _ = case.choice
    boot = case.registry.host(host).boot
    case.capacity.take(case.name, host)
    return replace(
        record, host=host, boot=boot, last=host, run=True, gentle=False,
        epoch=record.epoch + 1, target="", taker="", locations=(GuestLocation(host, boot),),
        turned=0,
    )  # fmt: skip
