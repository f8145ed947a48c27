"""Guests that get a host, and run there."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from saltvirt.ha.model import failures, safety
from saltvirt.ha.model.guest_context import GuestContext
from saltvirt.ha.model.messages import RUNNING
from saltvirt.ha.model.registry import (
    MAINTENANCE,
    REST,
    RETURNING,
    UP,
    GuestLocation,
    HaGuestRecord,
)


class GuestPlacing(GuestContext):
    """Conditions and changes that the rows of the table name."""

    def runs(self) -> bool:
        status, record = self.status, self.record
        is_reachable = self.host.state in (UP, MAINTENANCE)
        return bool(
            record.run and is_reachable and status is not None and self.is_held
            and status.state == RUNNING and status.epoch == record.epoch
            and not failures.obstacle(status)
        )  # fmt: skip

    def _is_free(self) -> bool:
        """Return whether the guest is to get a host, and no copy of it may still run anywhere."""
        unassigned = not (self.record.host and self.record.run)
        is_exclusive = safety.may_place(replace(self.record, places=self.locations))
        return unassigned and is_exclusive and self.registry.armed

    @cached_property
    def choice(self) -> str:
        """Return the host that the guest gets, or ""; ``reason`` then says why it gets none."""
        record, capacity = self.record, self.capacity
        last = self.registry.host(record.last)
        if last.state in (REST, RETURNING) and not record.failed and not record.better:
            self.reason = f"it waits for {record.last}: {last.why}"
            return ""
        ranked, reason = capacity.ranked(self.name, record.failed)
        if not ranked and record.failed:
            ranked, reason = capacity.ranked(self.name)
        if record.better in ranked:
            ranked = [record.better]
        free = [host for host in ranked if not capacity.is_busy(host)]
        if not free:
            self.reason = f"{', '.join(ranked)}: as many start as may" if ranked else reason
        return free[0] if free else ""

    def has_room(self) -> bool:
        return self._is_free() and bool(self.choice)

    def has_no_room(self) -> bool:
        return self._is_free() and not self.choice

    # changes of the record

    def settle(self, record: HaGuestRecord) -> HaGuestRecord:
        home = "" if record.home == record.host else record.home
        return replace(record, better="", left="", gentle=False, taker="", anew=0, home=home)

    def assign(self, record: HaGuestRecord) -> HaGuestRecord:
        boot = self.registry.host(self.choice).boot
        self.capacity.take(self.name, self.choice)
        return replace(
            record, host=self.choice, boot=boot, last=self.choice, run=True, gentle=False,
            epoch=record.epoch + 1, target="", taker="", places=(GuestLocation(self.choice, boot),),
            turned=0,
        )  # fmt: skip
