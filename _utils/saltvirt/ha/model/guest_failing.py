"""Guests that fail while their host works, and their attempts: conditions and changes of the table
of guests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha.model import failures
from saltvirt.ha.model.guest_case import hosts_failed, let_go
from saltvirt.ha.model.guest_desired import halt
from saltvirt.ha.model.messages import ALIVE, IO_FAILED

if TYPE_CHECKING:
    from saltvirt.ha.model.guest_case import GuestCase
    from saltvirt.ha.model.registry import HaGuestRecord


def storage_obstacle(case: GuestCase) -> str:
    """Return the problem of the guest's storage that no restart would repair, or ""."""
    return failures.obstacle(case.own_status) if case.own_status else ""


def waits_for_storage(case: GuestCase) -> bool:
    return bool(storage_obstacle(case))


def failure(case: GuestCase) -> str:
    """Return the failure of the guest's current start, or "". The failure is not the guest's own if
    its host does not reach the guest's storage."""
    status = case.own_status
    if status is None or not case.registry.armed:
        return ""
    if status.trouble == IO_FAILED and case.misses_storage(case.view.policy.suspect_s):
        return ""
    return failures.failure(status, case.config.restarts)


def may_restart(case: GuestCase) -> bool:
    resets = case.own_status.resets if case.own_status else 0
    return case.record.restarts + resets < case.config.restarts and bool(failure(case))


def restart_reason(case: GuestCase) -> str:
    return f"it failed: {failure(case)}; it is restarted on the same host"


def may_relocate(case: GuestCase) -> bool:
    return case.record.relocates < case.config.relocates and bool(failure(case))


def relocate_reason(case: GuestCase) -> str:
    return f"it failed: {failure(case)}; it is started on another host"


def has_failed(case: GuestCase) -> bool:
    return bool(failure(case))


def failed_reason(case: GuestCase) -> str:
    return f"it failed: {failure(case)}; no attempts are left"


def is_stable(case: GuestCase) -> bool:
    record = case.record
    if not (record.restarts or record.relocates or record.failed):
        return False
    epoch, since_s = case.state.ran_s.get(case.name, (0, case.now_s))
    return epoch == record.epoch and case.now_s - since_s >= case.view.policy.stable_s


# changes of the record


def _is_alive(case: GuestCase) -> bool:
    return case.status is not None and case.status.state in ALIVE


def restart(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    epoch = record.epoch + 1
    anew = epoch if _is_alive(case) else 0
    return replace(record, epoch=epoch, restarts=record.restarts + 1, anew=anew)


def fail(case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    """Return the record of a guest that has failed. If the guest is still alive, it is left
    unchanged for an operator to examine."""
    return record if _is_alive(case) else halt(case, record)


def relocate(_case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    failed, relocates = hosts_failed(record), record.relocates + 1
    return let_go(replace(record, failed=failed, relocates=relocates, restarts=0), gentle=True)


def forgive(_case: GuestCase, record: HaGuestRecord) -> HaGuestRecord:
    return replace(record, restarts=0, relocates=0, failed=())
