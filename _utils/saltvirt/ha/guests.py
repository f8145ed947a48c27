"""The states of guests: the conditions of the table in ``transitions``, and what they change, by
topic in the classes of which this one is made."""

from __future__ import annotations

from dataclasses import replace

from saltvirt.ha.guest_moving import GuestMoving
from saltvirt.ha.guest_placing import GuestPlacing
from saltvirt.ha.registry import GuestRecord
from saltvirt.ha.transitions import GUESTS, Row, by_state, first

ROWS = by_state(GUESTS)


class GuestCase(GuestMoving, GuestPlacing):
    """One guest, as the leader sees it now."""

    def next(self) -> Row | None:
        """The row of the table that holds now, or None."""
        return first(ROWS, self.record.state, self)

    def changed(self, row: Row, version: int) -> GuestRecord:
        """The record after the row. version: of the registry that will have it."""
        record = replace(self.record, state=row.to, why=self.why or row.why, changed=version)
        done: GuestRecord = getattr(self, row.do)(record)
        return done

    def keep(self, record: GuestRecord) -> GuestRecord:
        return record
