"""Report progress while Salt Virt copies files, and check for virt.migrate_abort."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from saltvirt import errors
from saltvirt.host.migration.move_journal import MigrationJournal

POLL_S = 0.5


class Watch:
    """journal: of the migration; notify: from the MigrationJob. renew: is called regularly, to
    renew the reservation. bytes_s: maximum bytes per second; None: no limit.

    Called with (bytes done, total bytes) for each block. Raises MigrationFailed if an abort was
    requested.
    """

    def __init__(
        self,
        journal: MigrationJournal,
        notify: Callable[[dict[str, Any]], None],
        renew: Callable[[], None] = lambda: None,
        bytes_s: int | None = None,
    ):
        self.journal, self.notify, self.renew = journal, notify, renew
        self.bytes_s = bytes_s
        self.started_at = self.polled_at = time.monotonic()
        self.done_before = 0

    def begin(self) -> None:
        """Start with another file."""
        self.started_at = self.polled_at = time.monotonic()
        self.done_before = 0
        self.check_abort()

    def check_abort(self) -> None:
        self.renew()
        if self.journal.abort_requested():
            raise errors.MigrationFailed("aborted by virt.migrate_abort")

    def _keep_pace(self, done: int) -> None:
        """Wait until this number of bytes may have been sent."""
        while self.bytes_s:
            early_s = done / self.bytes_s - (time.monotonic() - self.started_at)
            if early_s <= 0:
                return
            time.sleep(min(early_s, POLL_S))
            self.check_abort()

    def __call__(self, done: int, total: int) -> None:
        self._keep_pace(done)
        now = time.monotonic()
        took_s = now - self.polled_at
        if took_s < POLL_S:
            return
        self.check_abort()
        self.notify({
            "percent": round(100 * done / max(1, total)), "remaining_bytes": total - done,
            "speed": int((done - self.done_before) / took_s), "dirty_rate": 0,
            "elapsed_s": round(now - self.started_at, 1),
        })  # fmt: skip
        self.polled_at, self.done_before = now, done
