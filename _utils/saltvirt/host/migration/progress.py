"""What is told while we copy files ourselves; and the place where virt.migrate_abort is heard."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from saltvirt import errors
from saltvirt.host.migration.move_journal import Journal

LOOK_S = 0.5


class Watch:
    """journal: of the migration; tell: as of a api.MigrationJob. beat: called now and then, to say
    that the migration lives. bytes_s: no more than so many are sent in a second; None: as many as
    the network takes.

    Called with (bytes done, bytes in all) at each block. Raises MigrationFailed when it is to end.
    """

    def __init__(
        self,
        journal: Journal,
        tell: Callable[[dict[str, Any]], None],
        beat: Callable[[], None] = lambda: None,
        bytes_s: int | None = None,
    ):
        self.journal, self.tell, self.beat = journal, tell, beat
        self.bytes_s = bytes_s
        self.began = self.looked = time.monotonic()
        self.before = 0

    def begin(self) -> None:
        """Another file."""
        self.began = self.looked = time.monotonic()
        self.before = 0
        self.end_if_asked()

    def end_if_asked(self) -> None:
        self.beat()
        if self.journal.is_to_end():
            raise errors.MigrationFailed("aborted by virt.migrate_abort")

    def _keep_pace(self, done: int) -> None:
        """Waits until so many bytes may have been sent."""
        while self.bytes_s:
            early_s = done / self.bytes_s - (time.monotonic() - self.began)
            if early_s <= 0:
                return
            time.sleep(min(early_s, LOOK_S))
            self.end_if_asked()

    def __call__(self, done: int, total: int) -> None:
        self._keep_pace(done)
        now = time.monotonic()
        took_s = now - self.looked
        if took_s < LOOK_S:
            return
        self.end_if_asked()
        self.tell(
            {
                "percent": round(100 * done / max(1, total)),
                "remaining_bytes": total - done,
                "speed": int((done - self.before) / took_s),
                "dirty_rate": 0,
                "elapsed_s": round(now - self.began, 1),
            }
        )
        self.looked, self.before = now, done
