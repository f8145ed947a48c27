"""Guests that fail alone, and the tries that they have."""

from __future__ import annotations

from dataclasses import replace

from saltvirt.ha import failing
from saltvirt.ha.facts import ALIVE, IO_FAILED, GuestThere
from saltvirt.ha.guest_left import GuestLeft
from saltvirt.ha.guest_wanted import GuestAsked
from saltvirt.ha.registry import GuestRecord


class GuestFailing(GuestAsked, GuestLeft):
    """Conditions and changes of the table's rows."""

    def waits_for_storage(self) -> bool:
        there = self._own()
        self.why = failing.obstacle(there) if there else ""
        return bool(self.why)

    def _is_of_its_host(self, there: GuestThere) -> bool:
        """It is not its fault that its host does not reach its storage."""
        return there.trouble == IO_FAILED and self._misses_storage(self.view.policy.suspect_s)

    def _tries(self, left: bool, how: str) -> bool:
        there, seen = self._own(), ""
        if there and self.registry.armed and not self._is_of_its_host(there):
            seen = failing.failure(there, self.wanted.restarts)
        self.why = f"it failed: {seen}: {how}" if seen and left else ""
        return bool(self.why)

    def may_restart(self) -> bool:
        there = self._own()
        if there is None:
            return False
        used = self.record.restarts + there.resets
        return self._tries(used < self.wanted.restarts, "once more in place")

    def may_relocate(self) -> bool:
        left = self.record.relocates < self.wanted.relocates
        return self._tries(left, "once more elsewhere")

    def has_failed(self) -> bool:
        return self._tries(True, "as often as it may")

    def is_stable(self) -> bool:
        record = self.record
        if not (record.restarts or record.relocates or record.failed):
            return False
        epoch, since_s = self.state.ran_s.get(self.name, (0, self.now_s))
        return epoch == record.epoch and self.now_s - since_s >= self.view.policy.stable_s

    # what is changed

    def restart(self, record: GuestRecord) -> GuestRecord:
        epoch, runs = record.epoch + 1, self.there is not None and self.there.state in ALIVE
        tries = record.restarts + 1
        return replace(record, epoch=epoch, restarts=tries, anew=epoch if runs else 0)

    def fail(self, record: GuestRecord) -> GuestRecord:
        """One that is alive still is left as it is, for a person to look at."""
        alive = self.there is not None and self.there.state in ALIVE
        return record if alive else self.halt(record)

    def relocate(self, record: GuestRecord) -> GuestRecord:
        failed = tuple(sorted({*record.failed, record.host}))
        moved = replace(record, failed=failed, relocates=record.relocates + 1, restarts=0)
        return self._let_go(moved, gentle=True)

    def forgive(self, record: GuestRecord) -> GuestRecord:
        return replace(record, restarts=0, relocates=0, failed=())
