"""Write the agent's commitments to disk on a thread of its own, so that neither a heartbeat nor the
watchdog waits for a slow disk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from saltvirt.ha.model.agent_view import SavedAgentState
from saltvirt.ha.model.state_disk import StateDisk
from saltvirt.system.atomic_file import NotDurable

_END_S = 5


class DiskWriter(StateDisk):
    """write: returns once the state is on disk, or raises OSError. timeout_s: the maximum time that
    a heartbeat waits. report: logs a text."""

    def __init__(
        self,
        saved: SavedAgentState,
        write: Callable[[SavedAgentState], None],
        timeout_s: float,
        report: Callable[[str], None],
    ) -> None:
        super().__init__(saved)
        self._write, self._timeout_s, self._report = write, timeout_s, report
        self._next: queue.SimpleQueue[SavedAgentState | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def begin(self, saved: SavedAgentState) -> None:
        self._next.put(saved)
        try:
            self._finish(self._done.get(timeout=self._timeout_s))
        except queue.Empty:
            self._report("the disk is slow: the agent makes no commitments until it has written")

    def poll(self) -> None:
        if not self._done.empty():
            self._finish(self._done.get())

    def end(self) -> None:
        """Wait for a write in progress."""
        self._next.put(None)
        self._thread.join(_END_S)

    def _finish(self, failed: OSError | None) -> None:
        if failed is not None:
            self._report(f"cannot write {failed.filename or 'to the disk'}: {failed.strerror}")
        self.finish(failed is None, isinstance(failed, NotDurable))

    def _run(self) -> None:
        while (saved := self._next.get()) is not None:
            failed = None
            try:
                self._write(saved)
            except OSError as exc:
                failed = exc
            self._done.put(failed)
