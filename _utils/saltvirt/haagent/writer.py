"""What the agent must not forget, written to the disk by a thread of its own: a disk that is slow,
or hangs, keeps neither a beat nor the watchdog waiting."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from saltvirt.ha.agent_disk import Disk
from saltvirt.ha.agent_view import Kept
from saltvirt.haagent.store import Unsettled

_END_S = 5


class Writer(Disk):
    """write: returns when it is on the disk, or raises OSError. patience_s: for so long a beat
    waits for it. say: into the log."""

    def __init__(
        self,
        has: Kept,
        write: Callable[[Kept], None],
        patience_s: float,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(has)
        self._write, self._patience_s, self._say = write, patience_s, say
        self._next: queue.SimpleQueue[Kept | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def begin(self, kept: Kept) -> None:
        self._next.put(kept)
        try:
            self._ended(self._done.get(timeout=self._patience_s))
        except queue.Empty:
            self._say("the disk is slow: nothing new is granted or promised until it has written")

    def look(self) -> None:
        if not self._done.empty():
            self._ended(self._done.get())

    def end(self) -> None:
        """What is under way may still be written."""
        self._next.put(None)
        self._thread.join(_END_S)

    def _ended(self, failed: OSError | None) -> None:
        if failed is not None:
            self._say(f"cannot write {failed.filename or 'to the disk'}: {failed.strerror}")
        self.ended(failed is None, isinstance(failed, Unsettled))

    def _run(self) -> None:
        while (kept := self._next.get()) is not None:
            failed = None
            try:
                self._write(kept)
            except OSError as exc:
                failed = exc
            self._done.put(failed)
