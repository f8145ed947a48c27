"""The states of guests: the conditions of the table in ``transitions`` and the changes of records,
which are divided by topic into the base classes of GuestCase."""

from __future__ import annotations

from dataclasses import replace

from saltvirt.ha.model.guest_migrating import GuestMigrating
from saltvirt.ha.model.guest_placing import GuestPlacing
from saltvirt.ha.model.registry import HaGuestRecord
from saltvirt.ha.model.transitions import GUESTS, Row, by_state, first

ROWS = by_state(GUESTS)


class GuestCase(GuestMigrating, GuestPlacing):
    """One guest, as the leader sees it now."""

    def next(self) -> Row | None:
        """Return the row of the table whose condition holds now, or None."""
        return first(ROWS, self.record.state, self)

    def changed(self, row: Row, version: int) -> HaGuestRecord:
        """Return the record after the row. version: the version of the registry that will contain
        the record."""
        record = replace(self.record, state=row.to, why=self.reason or row.reason, changed=version)
        updated: HaGuestRecord = getattr(self, row.action)(record)
        return updated

    def unchanged(self, record: HaGuestRecord) -> HaGuestRecord:
        return record
