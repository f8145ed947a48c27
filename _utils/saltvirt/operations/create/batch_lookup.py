"""Many guests are made at once, and all hosts are asked once for several of them whether one has a
second guest of a name: after they were made, and before any of them is started."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find

T = TypeVar("T")
Created = TypeVar("Created")

# a look at all hosts is for so many guests, when so many come; but nobody waits longer for others
MAX_GUESTS, MAX_WAIT_S = 20, 30
# of few hosts a look costs little, and nobody waits for it longer than a moment: it is for a guest
# of so many hosts
_HOSTS, MOMENT_S = 5, 0.5


def size_for(hosts: int) -> int:
    """For how many guests one look at so many hosts is: no more than five answers a guest come,
    or ten for each hundred hosts."""
    return max(1, min(MAX_GUESTS, hosts // _HOSTS))


def create_each(
    todo: Sequence[T], make: Callable[[T, CreateSlot], Created], at_once: int, hosts: int
) -> Iterator[tuple[T, Future[Created]]]:
    """Makes each, so many at a time, in threads: (which one, what became of it) as they end.

    make: callable of one of them and its Turn. hosts: how many are asked in a look at all.
    """
    size = size_for(hosts)
    batcher = LookupBatcher(at_once, size, coming=len(todo))

    def make_one(item: T) -> Created:
        with batcher.slot() as turn:
            return make(item, turn)

    # while some wait for a look at all hosts others are made
    with ThreadPoolExecutor(max_workers=at_once + 2 * size) as pool:
        running = {pool.submit(make_one, item): item for item in todo}
        for done in as_completed(running):
            yield running[done], done


class _LookupBatch:
    """One look at all hosts, and how many wait for it."""

    def __init__(self) -> None:
        self.waiting, self.is_done = 0, False
        self.locations: find.Locations | None = None


class LookupBatcher:
    """at_once: how many guests are made at a time. size: for how many there is one look. coming:
    how many there are in all: when none is left to come, nobody waits for more."""

    def __init__(self, at_once: int, size: int, coming: int, wait_s: float = MAX_WAIT_S) -> None:
        self._slots = threading.Semaphore(at_once)
        self._size, self._coming = size, coming
        self._wait_s = wait_s if size > 1 else min(wait_s, MOMENT_S)
        self._changed = threading.Condition()
        self._next, self._is_querying = _LookupBatch(), False

    @contextlib.contextmanager
    def slot(self) -> Iterator[CreateSlot]:
        """One of the turns, for the block: for one guest. It ends before, when the guest is
        there."""
        self._slots.acquire()
        create_slot = CreateSlot(self)
        try:
            yield create_slot
        finally:
            create_slot.release()

    def release_slot(self) -> None:
        """One less is coming, and another may be made."""
        self._slots.release()
        with self._changed:
            self._coming -= 1
            self._changed.notify_all()

    def query_locations(
        self, fleet: Fleet, on_join: Callable[[], None] = lambda: None
    ) -> find.Locations:
        """What a look at all hosts tells that begins after this call. on_join: called when the look
        is for this one, too. Raises as find.locations."""
        fleet.disconnect()
        with self._changed:
            batch = self._next
            batch.waiting += 1
            on_join()
            # whoever came first has waited for others when he has waited so long
            self._changed.wait_for(lambda: batch.is_done or self._is_full(batch), self._wait_s)
            self._changed.wait_for(lambda: not self._is_querying)
            if batch.is_done:
                return batch.locations or find.locations(fleet)
            self._is_querying, self._next = True, _LookupBatch()
        try:
            batch.locations = find.locations(fleet)
            return batch.locations
        finally:  # whoever waits for one that failed asks for himself
            with self._changed:
                self._is_querying, batch.is_done = False, True
                self._changed.notify_all()

    def _is_full(self, batch: _LookupBatch) -> bool:
        """Whether nobody else is waited for."""
        return self._coming <= 0 or batch.waiting >= self._size > 1


class CreateSlot:
    """The turn of one guest."""

    def __init__(self, batcher: LookupBatcher) -> None:
        self._batcher, self._is_released = batcher, False

    def release(self) -> None:
        """The next guest may be made."""
        if not self._is_released:
            self._is_released = True
            self._batcher.release_slot()

    def query_locations(self, fleet: Fleet) -> find.Locations:
        """The guest is there: as Together.look. The turn ends."""
        return self._batcher.query_locations(fleet, self.release)
