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
from saltvirt.fleet.client import Fleet, StallNotice, Watch
from saltvirt.operations.journal import slots

# so many guests a job at most: the others see that it gets on
MAX_BATCH = 20
# while others come, so long after each other, the first one waits for them; and no longer in all
GATHER_S, MAX_GATHER_S = 0.3, 3
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
        on_stall: StallNotice | None = None,
    ) -> Answer:
        """Its Answer. What is asked is as Fleet.ask has it, of a long job."""

    def deploying(
        self, opts: dict[str, Any], notify: slots.Notify, purpose: str
    ) -> contextlib.AbstractContextManager[slots.Slots]:
        """The slot of a guest's deployment."""


class SingleJobs:
    """A job for each."""

    def ask(
        self,
        fleet: Fleet,
        host: str,
        fun: str,
        kwarg: dict[str, Any],
        watch: Watch | None = None,
        on_stall: StallNotice | None = None,
    ) -> Answer:
        """See Jobs."""
        return fleet.gather([host], fun, kwarg, long=True, watch=watch, quiet=on_stall)[host]

    def deploying(
        self, opts: dict[str, Any], notify: slots.Notify, purpose: str
    ) -> contextlib.AbstractContextManager[slots.Slots]:
        """See Jobs."""
        return slots.deploying(opts, notify, purpose)


SINGLE_JOBS = SingleJobs()


@dataclass
class _PendingCall:
    """One question, and its Answer or what was raised instead."""

    kwarg: dict[str, Any]
    watch: Watch | None
    on_stall: StallNotice | None
    answer: Answer | None = None
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.answer is not None or self.error is not None

    def get(self) -> Answer:
        """Of one that is over."""
        if self.answer is None:
            raise self.error or errors.OperationFailed("nobody has asked it")
        return self.answer


@dataclass
class _HostQueue:
    """Those that wait for one function of one host. asked: for how many it was."""

    waiting: list[_PendingCall] = field(default_factory=list)
    submitted_count: int = 0
    busy: bool = False


class BatchedJobs:
    """A job for all that wait for a host. at_once: so many jobs that make guests at a time, each of
    which makes one guest after the other. coming: host to how many guests are expected there;
    when all have come, nobody is waited for."""

    def __init__(self, at_once: int, gather_s: float = GATHER_S) -> None:
        self.coming: dict[str, int] = {}
        self._slots = threading.Semaphore(at_once)
        self._gather_s = gather_s
        self._changed = threading.Condition()
        self._queues: dict[tuple[str, str], _HostQueue] = {}

    def ask(
        self,
        fleet: Fleet,
        host: str,
        fun: str,
        kwarg: dict[str, Any],
        watch: Watch | None = None,
        on_stall: StallNotice | None = None,
    ) -> Answer:
        """See Jobs. Whoever comes first asks for all that have come by then."""
        own_call = _PendingCall(kwarg, watch, on_stall)
        with self._changed:
            queue = self._queues.setdefault((host, fun), _HostQueue())
            queue.waiting.append(own_call)
            self._changed.notify_all()
            self._changed.wait_for(lambda: own_call.is_done or not queue.busy)
            if own_call.is_done:
                return own_call.get()
            queue.busy = True
        self._run_batches(fleet, host, fun, queue, own_call)
        return own_call.get()

    def deploying(
        self, opts: dict[str, Any], notify: slots.Notify, purpose: str
    ) -> contextlib.AbstractContextManager[slots.Slots]:
        """See Jobs: the slot is the job's."""
        return contextlib.nullcontext(slots.Slots(()))

    def _run_batches(
        self, fleet: Fleet, host: str, fun: str, queue: _HostQueue, own_call: _PendingCall
    ) -> None:
        """Until one's own answer is there; then whoever waits longest goes on."""
        try:
            while not own_call.is_done:
                self._run_batch(fleet, host, fun, queue)
        finally:
            with self._changed:
                # what failed before it was asked is asked by nobody else
                queue.waiting = [call for call in queue.waiting if call is not own_call]
                queue.busy = False
                self._changed.notify_all()

    def _wait_for_more(self, queue: _HostQueue, host: str) -> None:
        """Until for a while nobody came, or all that are expected."""
        arrived, deadline_s = 0, time.monotonic() + MAX_GATHER_S
        expected = self.coming.get(host)
        enough = MAX_BATCH if expected is None else min(MAX_BATCH, expected - queue.submitted_count)
        with self._changed:
            while arrived < len(queue.waiting) < enough and time.monotonic() < deadline_s:
                arrived = len(queue.waiting)
                self._changed.wait_for(lambda: len(queue.waiting) >= enough, self._gather_s)

    def _run_batch(self, fleet: Fleet, host: str, fun: str, queue: _HostQueue) -> None:
        """One job with those that have come; each gets its Answer."""
        with self._slot(fleet, host, fun) as slot:
            self._wait_for_more(queue, host)
            with self._changed:
                batch, queue.waiting = queue.waiting[:MAX_BATCH], queue.waiting[MAX_BATCH:]
                queue.submitted_count += len(batch)
            try:
                call_arguments = [call.kwarg for call in batch]
                answers = fleet.each(
                    host,
                    fun,
                    call_arguments,
                    watch=_watch(batch),
                    quiet=_combined_notice(batch, slot.free),
                )
                for call, answer in zip(batch, answers, strict=True):
                    call.answer = answer
            except BaseException as exc:
                for call in batch:
                    call.error = exc
            finally:
                with self._changed:
                    self._changed.notify_all()

    @contextlib.contextmanager
    def _slot(self, fleet: Fleet, host: str, fun: str) -> Iterator[slots.Slots]:
        """For a job that makes guests: a turn, and the master's slot."""
        if fun != "virt.init":
            yield slots.Slots(())
            return
        with self._slots, slots.deploying(fleet.opts, _ignore_wait, f"virt.init on {host}") as slot:
            yield slot


def _ignore_wait(_reason: str) -> None:
    """Of many that wait nothing is said: each line is one that was done."""


def _watch(calls: list[_PendingCall]) -> Watch | None:
    """Steps of all of them, each told to the one that it is of: warnings, and what takes long.
    The lines of all the others would hide them."""
    watches = [call.watch for call in calls if call.watch]

    def forward(tag: str, data: dict[str, Any]) -> None:
        for prefix, notify in watches:
            if tag.startswith(prefix) and (tag.endswith("/warning") or data.get("within_s")):
                notify(tag, data)

    return (_STEPS, forward) if watches else None


def _combined_notice(calls: list[_PendingCall], free: Callable[[], None]) -> StallNotice | None:
    """As patient as the least patient of them, and told to all."""
    notices = [item.on_stall for item in calls if item.on_stall]
    if not notices:
        return None

    def notify_all() -> None:
        free()
        for _, _, notify in notices:
            notify()

    return min(item[0] for item in notices), min(item[1] for item in notices), notify_all
