"""Create many guests concurrently. For several new guests at a time, all hosts are asked in one
query whether another guest has one of the names: after these guests were created, and before any of
them is started."""

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

# maximum number of guests for one query of all hosts, and the maximum wait for further guests
MAX_GUESTS, MAX_WAIT_S = 20, 30
# with few hosts, a query is cheap and waits only a moment; one guest for each _HOSTS hosts
_HOSTS, MOMENT_S = 5, 0.5


def size_for(hosts: int) -> int:
    """Return for how many guests one query of all hosts is: at most five answers for each guest, or
    ten for each hundred hosts."""
    return max(1, min(MAX_GUESTS, hosts // _HOSTS))


def create_each(
    todo: Sequence[T], make: Callable[[T, CreateSlot], Created], at_once: int, hosts: int
) -> Iterator[tuple[T, Future[Created]]]:
    """Create each item in threads, at most ``at_once`` at a time; yield (item, its future) as they
    end.

    make: creates one item in its CreateSlot. hosts: how many hosts a query asks.
    """
    size = size_for(hosts)
    batcher = LookupBatcher(at_once, size, coming=len(todo))

    def make_one(item: T) -> Created:
        with batcher.slot() as turn:
            return make(item, turn)

    # while some guests wait for a query of all hosts, others are created
    with ThreadPoolExecutor(max_workers=at_once + 2 * size) as pool:
        running = {pool.submit(make_one, item): item for item in todo}
        for done in as_completed(running):
            yield running[done], done


class _LookupBatch:
    """One query of all hosts, and the number of guests that wait for it."""

    def __init__(self) -> None:
        self.waiting, self.is_done = 0, False
        self.locations: find.Locations | None = None


class LookupBatcher:
    """Batches queries of all hosts. at_once: how many guests are created at a time. size: the
    number of guests for one query. coming: the number of all guests; if no further guest is coming,
    the query starts."""

    def __init__(self, at_once: int, size: int, coming: int, wait_s: float = MAX_WAIT_S) -> None:
        self._slots = threading.Semaphore(at_once)
        self._size, self._coming = size, coming
        self._wait_s = wait_s if size > 1 else min(wait_s, MOMENT_S)
        self._changed = threading.Condition()
        self._next, self._is_querying = _LookupBatch(), False

    @contextlib.contextmanager
    def slot(self) -> Iterator[CreateSlot]:
        """Yield a slot for the creation of one guest. The slot is released early when the guest
        exists."""
        self._slots.acquire()
        create_slot = CreateSlot(self)
        try:
            yield create_slot
        finally:
            create_slot.release()

    def release_slot(self) -> None:
        """Count one guest as done, and let another one be created."""
        self._slots.release()
        with self._changed:
            self._coming -= 1
            self._changed.notify_all()

    def query_locations(
        self, fleet: Fleet, on_join: Callable[[], None] = lambda: None
    ) -> find.Locations:
        """Return the locations from a query of all hosts that starts after this call. on_join:
        called when this guest has joined the batch. Raises as find.locations does."""
        fleet.disconnect()
        with self._changed:
            batch = self._next
            batch.waiting += 1
            on_join()
            # the first guest of a batch has waited for the others
            self._changed.wait_for(lambda: batch.is_done or self._is_full(batch), self._wait_s)
            self._changed.wait_for(lambda: not self._is_querying)
            if batch.is_done:
                return batch.locations or find.locations(fleet)
            self._is_querying, self._next = True, _LookupBatch()
        try:
            batch.locations = find.locations(fleet)
            return batch.locations
        finally:  # if the query failed, each waiting guest queries the hosts itself
            with self._changed:
                self._is_querying, batch.is_done = False, True
                self._changed.notify_all()

    def _is_full(self, batch: _LookupBatch) -> bool:
        """Return whether the batch waits for no further guest."""
        return self._coming <= 0 or batch.waiting >= self._size > 1


class CreateSlot:
    """The slot of one guest."""

    def __init__(self, batcher: LookupBatcher) -> None:
        self._batcher, self._is_released = batcher, False

    def release(self) -> None:
        """Let the next guest be created."""
        if not self._is_released:
            self._is_released = True
            self._batcher.release_slot()

    def query_locations(self, fleet: Fleet) -> find.Locations:
        """Release the slot, because the guest exists, and return as LookupBatcher.query_locations
        does."""
        return self._batcher.query_locations(fleet, self.release)
