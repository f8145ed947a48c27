"""What is told while we copy files ourselves; and the place where virt.migrate_abort is heard."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from saltvirt import errors
from saltvirt.host.migration.move_journal import MigrationJournal

POLL_S = 0.5


class Watch:
    """journal: of the migration; tell: as of a api.MigrationJob. beat: called now and then, to say
    that the migration lives. bytes_s: no more than so many are sent in a second; None: as many as
    the network takes.

    Called with (bytes done, bytes in all) at each block. Raises MigrationFailed when it is to end.
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
        """Another file."""
        self.started_at = self.polled_at = time.monotonic()
        self.done_before = 0
        self.check_abort()

    def check_abort(self) -> None:
        self.renew()
        if self.journal.abort_requested():
            raise errors.MigrationFailed("aborted by virt.migrate_abort")

    def _keep_pace(self, done: int) -> None:
        """Waits until so many bytes may have been sent."""
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
        self.notify(
            {
                "percent": round(100 * done / max(1, total)),
                "remaining_bytes": total - done,
                "speed": int((done - self.done_before) / took_s),
                "dirty_rate": 0,
                "elapsed_s": round(now - self.started_at, 1),
            }
        )
        self.polled_at, self.done_before = now, done
