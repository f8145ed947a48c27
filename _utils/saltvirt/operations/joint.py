"""The jobs of hosts that make and start guests: a job a guest, or one for all that wait for a host.

A job costs a host and the master more than to define a guest does. So of guests that are made
together, those that wait while their host is at work go to it in one job, one after the other.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from saltvirt import errors
from saltvirt.fleet.answer import Answer
from saltvirt.fleet.client import Fleet, Quiet, Watch
from saltvirt.operations import slots

# so many guests a job at most: the others see that it gets on
MOST = 20
# while others come, so long after each other, the first one waits for them; and no longer in all
GATHER_S, MOST_GATHER_S = 0.3, 3
# what the tags of all events of steps begin with
_STEPS = "salt/virt/"


class Jobs(Protocol):
    """How a host is asked to do something to one guest."""

    def ask(
        self,
        fleet: Fleet,
        host: str,
        fun: str,
        kwarg: dict[str, Any],
        watch: Watch | None = None,
        quiet: Quiet | None = None,
    ) -> Answer:
        """Its Answer. What is asked is as Fleet.ask has it, of a long job."""

    def deploying(
        self, opts: dict[str, Any], tell: slots.Tell, what: str
    ) -> contextlib.AbstractContextManager[slots.Slots]:
        """The slot of a guest's deployment."""


class Alone:
    """A job for each."""

    def ask(
        self,
        fleet: Fleet,
        host: str,
        fun: str,
        kwarg: dict[str, Any],
        watch: Watch | None = None,
        quiet: Quiet | None = None,
    ) -> Answer:
        """See Jobs."""
        return fleet.gather([host], fun, kwarg, long=True, watch=watch, quiet=quiet)[host]

    def deploying(
        self, opts: dict[str, Any], tell: slots.Tell, what: str
    ) -> contextlib.AbstractContextManager[slots.Slots]:
        """See Jobs."""
        return slots.deploying(opts, tell, what)


ALONE = Alone()


@dataclass
class _Asked:
    """One question, and its Answer or what was raised instead."""

    kwarg: dict[str, Any]
    watch: Watch | None
    quiet: Quiet | None
    answer: Answer | None = None
    error: BaseException | None = None

    @property
    def over(self) -> bool:
        return self.answer is not None or self.error is not None

    def get(self) -> Answer:
        """Of one that is over."""
        if self.answer is None:
            raise self.error or errors.OperationFailed("nobody has asked it")
        return self.answer


@dataclass
class _Line:
    """Those that wait for one function of one host. asked: for how many it was."""

    waiting: list[_Asked] = field(default_factory=list)
    asked: int = 0
    busy: bool = False


class Joint:
    """A job for all that wait for a host. at_once: so many jobs that make guests at a time, each of
    which makes one guest after the other. coming: host to how many guests are expected there;
    when all have come, nobody is waited for."""

    def __init__(self, at_once: int, gather_s: float = GATHER_S) -> None:
        self.coming: dict[str, int] = {}
        self._turns = threading.Semaphore(at_once)
        self._gather_s = gather_s
        self._changed = threading.Condition()
        self._lines: dict[tuple[str, str], _Line] = {}

    def ask(
        self,
        fleet: Fleet,
        host: str,
        fun: str,
        kwarg: dict[str, Any],
        watch: Watch | None = None,
        quiet: Quiet | None = None,
    ) -> Answer:
        """See Jobs. Whoever comes first asks for all that have come by then."""
        mine = _Asked(kwarg, watch, quiet)
        with self._changed:
            line = self._lines.setdefault((host, fun), _Line())
            line.waiting.append(mine)
            self._changed.notify_all()
            self._changed.wait_for(lambda: mine.over or not line.busy)
            if mine.over:
                return mine.get()
            line.busy = True
        self._ask_all(fleet, host, fun, line, mine)
        return mine.get()

    def deploying(
        self, opts: dict[str, Any], tell: slots.Tell, what: str
    ) -> contextlib.AbstractContextManager[slots.Slots]:
        """See Jobs: the slot is the job's."""
        return contextlib.nullcontext(slots.Slots(()))

    def _ask_all(self, fleet: Fleet, host: str, fun: str, line: _Line, mine: _Asked) -> None:
        """Until one's own answer is there; then whoever waits longest goes on."""
        try:
            while not mine.over:
                self._together(fleet, host, fun, line)
        finally:
            with self._changed:
                # what failed before it was asked is asked by nobody else
                line.waiting = [one for one in line.waiting if one is not mine]
                line.busy = False
                self._changed.notify_all()

    def _wait_for_more(self, line: _Line, host: str) -> None:
        """Until for a while nobody came, or all that are expected."""
        came, end = 0, time.monotonic() + MOST_GATHER_S
        known = self.coming.get(host)
        enough = MOST if known is None else min(MOST, known - line.asked)
        with self._changed:
            while came < len(line.waiting) < enough and time.monotonic() < end:
                came = len(line.waiting)
                self._changed.wait_for(lambda: len(line.waiting) >= enough, self._gather_s)

    def _together(self, fleet: Fleet, host: str, fun: str, line: _Line) -> None:
        """One job with those that have come; each gets its Answer."""
        with self._slot(fleet, host, fun) as slot:
            self._wait_for_more(line, host)
            with self._changed:
                asked, line.waiting = line.waiting[:MOST], line.waiting[MOST:]
                line.asked += len(asked)
            try:
                calls = [one.kwarg for one in asked]
                answers = fleet.each(
                    host, fun, calls, watch=_watch(asked), quiet=_quiet(asked, slot.free)
                )
                for one, found in zip(asked, answers, strict=True):
                    one.answer = found
            except BaseException as exc:
                for one in asked:
                    one.error = exc
            finally:
                with self._changed:
                    self._changed.notify_all()

    @contextlib.contextmanager
    def _slot(self, fleet: Fleet, host: str, fun: str) -> Iterator[slots.Slots]:
        """For a job that makes guests: a turn, and the master's slot."""
        if fun != "virt.init":
            yield slots.Slots(())
            return
        with self._turns, slots.deploying(fleet.opts, _nobody, f"virt.init on {host}") as slot:
            yield slot


def _nobody(_why: str) -> None:
    """Of many that wait nothing is said: each line is one that was done."""


def _watch(asked: list[_Asked]) -> Watch | None:
    """Steps of all of them, each told to the one that it is of: warnings, and what takes long.
    The lines of all the others would hide them."""
    watches = [one.watch for one in asked if one.watch]

    def told(tag: str, data: dict[str, Any]) -> None:
        for prefix, tell in watches:
            if tag.startswith(prefix) and (tag.endswith("/warning") or data.get("within_s")):
                tell(tag, data)

    return (_STEPS, told) if watches else None


def _quiet(asked: list[_Asked], free: Callable[[], None]) -> Quiet | None:
    """As patient as the least patient of them, and told to all."""
    found = [one.quiet for one in asked if one.quiet]
    if not found:
        return None

    def quiet() -> None:
        free()
        for _, _, tell in found:
            tell()

    return min(one[0] for one in found), min(one[1] for one in found), quiet
