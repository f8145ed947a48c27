"""Many guests are made at once, and all hosts are asked once for several of them whether one has a
second guest of a name: after they were made, and before any of them is started."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from saltvirt.fleet.client import Fleet
from saltvirt.operations import find

T = TypeVar("T")
Made = TypeVar("Made")

# a look at all hosts is for so many guests, when so many come; but nobody waits longer for others
MOST, WAIT_S = 20, 30
# of few hosts a look costs little, and nobody waits for it longer than a moment: it is for a guest
# of so many hosts
_HOSTS, MOMENT_S = 5, 0.5


def size_for(hosts: int) -> int:
    """For how many guests one look at so many hosts is: no more than five answers a guest come,
    or ten for each hundred hosts."""
    return max(1, min(MOST, hosts // _HOSTS))


def each(
    todo: Sequence[T], make: Callable[[T, Turn], Made], at_once: int, hosts: int
) -> Iterator[tuple[T, Future[Made]]]:
    """Makes each, so many at a time, in threads: (which one, what became of it) as they end.

    make: callable of one of them and its Turn. hosts: how many are asked in a look at all.
    """
    size = size_for(hosts)
    together = Together(at_once, size, coming=len(todo))

    def make_one(one: T) -> Made:
        with together.turn() as turn:
            return make(one, turn)

    # while some wait for a look at all hosts others are made
    with ThreadPoolExecutor(max_workers=at_once + 2 * size) as pool:
        running = {pool.submit(make_one, one): one for one in todo}
        for done in as_completed(running):
            yield running[done], done


class _Look:
    """One look at all hosts, and how many wait for it."""

    def __init__(self) -> None:
        self.waiting, self.over = 0, False
        self.found: find.Locations | None = None


class Together:
    """at_once: how many guests are made at a time. size: for how many there is one look. coming:
    how many there are in all: when none is left to come, nobody waits for more."""

    def __init__(self, at_once: int, size: int, coming: int, wait_s: float = WAIT_S) -> None:
        self._turns = threading.Semaphore(at_once)
        self._size, self._coming = size, coming
        self._wait_s = wait_s if size > 1 else min(wait_s, MOMENT_S)
        self._changed = threading.Condition()
        self._next, self._looking = _Look(), False

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn]:
        """One of the turns, for the block: for one guest. It ends before, when the guest is
        there."""
        self._turns.acquire()
        one = Turn(self)
        try:
            yield one
        finally:
            one.end()

    def end_turn(self) -> None:
        """One less is coming, and another may be made."""
        self._turns.release()
        with self._changed:
            self._coming -= 1
            self._changed.notify_all()

    def look(self, fleet: Fleet, counted: Callable[[], None] = lambda: None) -> find.Locations:
        """What a look at all hosts tells that begins after this call. counted: called when the look
        is for this one, too. Raises as find.locations."""
        fleet.rest()
        with self._changed:
            mine = self._next
            mine.waiting += 1
            counted()
            # whoever came first has waited for others when he has waited so long
            self._changed.wait_for(lambda: mine.over or self._all_there(mine), self._wait_s)
            self._changed.wait_for(lambda: not self._looking)
            if mine.over:
                return mine.found or find.locations(fleet)
            self._looking, self._next = True, _Look()
        try:
            mine.found = find.locations(fleet)
            return mine.found
        finally:  # whoever waits for one that failed asks for himself
            with self._changed:
                self._looking, mine.over = False, True
                self._changed.notify_all()

    def _all_there(self, mine: _Look) -> bool:
        """Whether nobody else is waited for."""
        return self._coming <= 0 or mine.waiting >= self._size > 1


class Turn:
    """The turn of one guest."""

    def __init__(self, together: Together) -> None:
        self._together, self._ended = together, False

    def end(self) -> None:
        """The next guest may be made."""
        if not self._ended:
            self._ended = True
            self._together.end_turn()

    def look(self, fleet: Fleet) -> find.Locations:
        """The guest is there: as Together.look. The turn ends."""
        return self._together.look(fleet, self.end)
