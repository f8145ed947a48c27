"""Create many guests concurrently. For several new guests at a time, all hosts are asked in one
query whether another guest has one of the names: after these guests were created, and before any of
them is started."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from saltvirt import errors
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find
from saltvirt.operations.cluster.unique import LocationQuery
from saltvirt.operations.create.batch_queue import BatchQueue

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
    todo: Sequence[T], make: Callable[[T, LocationQuery], Created], at_once: int, hosts: int
) -> Iterator[tuple[T, Future[Created]]]:
    """Create each item in threads, at most ``at_once`` at a time; yield (item, its future) as they
    end.

    make: creates one item, with the query of all hosts for it. hosts: how many hosts a query asks.
    """
    size = size_for(hosts)
    lookups = LookupQueue(at_once, size, coming=len(todo))

    interrupt = threading.Event()

    def make_one(item: T) -> Created:
        with lookups.slot() as query_locations:
            if interrupt.is_set():
                raise errors.OperationFailed("interrupted")
            return make(item, query_locations)

    # while some guests wait for a query of all hosts, others are created
    with ThreadPoolExecutor(max_workers=at_once + 2 * size) as pool:
        running = {pool.submit(make_one, item): item for item in todo}
        try:
            for done in as_completed(running):
                yield running[done], done
        finally:  # after Ctrl-C, no further guest is created
            interrupt.set()
            for future in running:
                future.cancel()


class LookupQueue(BatchQueue[Fleet, "find.Locations | None"]):
    """Batches queries of all hosts. at_once: how many guests are created at a time. size: the
    number of guests for one query. coming: the number of all guests; if no further guest is coming,
    the query starts."""

    def __init__(self, at_once: int, size: int, coming: int, wait_s: float = MAX_WAIT_S) -> None:
        super().__init__()
        self._slots = threading.Semaphore(at_once)
        self._size, self._coming = size, coming
        self._wait_s = wait_s if size > 1 else min(wait_s, MOMENT_S)

    @contextlib.contextmanager
    def slot(self) -> Iterator[LocationQuery]:
        """Hold a slot for the creation of one guest, and yield its query of all hosts. The query
        releases the slot early, because the guest exists by then."""
        self._slots.acquire()
        with contextlib.ExitStack() as slot:
            slot.callback(self._release)
            yield functools.partial(self.query_locations, on_join=slot.close)

    def _release(self) -> None:
        """Let another guest be created, and expect one less."""
        self._slots.release()
        with self.changed:
            self._coming -= 1
            self.changed.notify_all()

    def query_locations(
        self, fleet: Fleet, on_join: Callable[[], object] = lambda: None
    ) -> find.Locations:
        """Return the locations from a query of all hosts that starts after this call. on_join: as
        for submit. If the query of another thread fails, this one queries the hosts itself. Raises
        as find.locations does."""
        fleet.disconnect()
        return self.submit(fleet, on_join) or find.locations(fleet)

    def run_batch(self, own_request: Fleet) -> None:
        """Wait for further guests, and query all hosts for those that wait."""
        with self.changed:
            waited_s = time.monotonic() - self.waiting[0].joined_s
            self.changed.wait_for(self._is_full, max(0, self._wait_s - waited_s))
        batch, locations = self.take_batch(), None
        try:
            locations = find.locations(own_request)
        finally:
            self.answer(batch, [locations] * len(batch))

    def _is_full(self) -> bool:
        """Return whether the batch waits for no further guest."""
        return self._coming <= 0 or len(self.waiting) >= self._size > 1
