"""Guests that fail alone, and their tries."""

from __future__ import annotations

from dataclasses import replace

from saltvirt.ha.model import failures
from saltvirt.ha.model.guest_desired import GuestDesired
from saltvirt.ha.model.guest_failover import GuestFailover
from saltvirt.ha.model.messages import ALIVE, IO_FAILED, GuestStatus
from saltvirt.ha.model.registry import HaGuestRecord


class GuestFailing(GuestDesired, GuestFailover):
    """Conditions and changes that the rows of the table name."""

    def waits_for_storage(self) -> bool:
        status = self._own_status()
        self.reason = failures.obstacle(status) if status else ""
        return bool(self.reason)

    def _is_of_its_host(self, status: GuestStatus) -> bool:
        """Return whether the guest's host causes the failure: the host does not reach the guest's
        storage."""
        return status.trouble == IO_FAILED and self._misses_storage(self.view.policy.suspect_s)

    def _tries(self, allowed: bool, action: str) -> bool:
        status, cause = self._own_status(), ""
        if status and self.registry.armed and not self._is_of_its_host(status):
            cause = failures.failure(status, self.config.restarts)
        self.reason = f"it failed: {cause}: {action}" if cause and allowed else ""
        return bool(self.reason)

    def may_restart(self) -> bool:
        status = self._own_status()
        if status is None:
            return False
        used = self.record.restarts + status.resets
        return self._tries(used < self.config.restarts, "once more in place")

    def may_relocate(self) -> bool:
        allowed = self.record.relocates < self.config.relocates
        return self._tries(allowed, "once more elsewhere")

    def has_failed(self) -> bool:
        return self._tries(True, "as often as it may")

    def is_stable(self) -> bool:
        record = self.record
        if not (record.restarts or record.relocates or record.failed):
            return False
        epoch, since_s = self.state.ran_s.get(self.name, (0, self.now_s))
        return epoch == record.epoch and self.now_s - since_s >= self.view.policy.stable_s

    # changes of the record

    def restart(self, record: HaGuestRecord) -> HaGuestRecord:
        epoch, runs = record.epoch + 1, self.status is not None and self.status.state in ALIVE
        tries = record.restarts + 1
        return replace(record, epoch=epoch, restarts=tries, anew=epoch if runs else 0)

    def fail(self, record: HaGuestRecord) -> HaGuestRecord:
        """Return the record of a guest that has failed. If the guest is still alive, it is left
        unchanged for a person to examine."""
        alive = self.status is not None and self.status.state in ALIVE
        return record if alive else self.halt(record)

    def relocate(self, record: HaGuestRecord) -> HaGuestRecord:
        failed = tuple(sorted({*record.failed, record.host}))
        changed = replace(record, failed=failed, relocates=record.relocates + 1, restarts=0)
        return self._let_go(changed, gentle=True)

    def forgive(self, record: HaGuestRecord) -> HaGuestRecord:
        return replace(record, restarts=0, relocates=0, failed=())
