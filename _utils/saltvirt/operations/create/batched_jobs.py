"""Run jobs that create and start guests: one job for each guest, or one for all guests that wait
for a host.

A job costs a host and the master more than the definition of a guest. If many guests are created,
those that wait for a busy host share its next job, which processes them one after the other.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from saltvirt import errors
from saltvirt.answers.calls import Call, HostAnswer
from saltvirt.fleet.client import Fleet, StallNotice, Watch
from saltvirt.operations.journal import slots
from saltvirt.placement.calls import CREATE
from saltvirt.schema import Message

Request = TypeVar("Request", bound=Message)
Data = TypeVar("Data")

# maximum number of guests in a job, so that waiting guests see progress
MAX_BATCH = 20
# the first guest of a job waits this long for each further one, and at most this long in total
GATHER_S, MAX_GATHER_S = 0.3, 3
# prefix of the tags of all step events
_STEPS = "salt/virt/"


class Jobs(Protocol):
    """How a host is asked to process one guest."""

    def ask(
        self,
        fleet: Fleet,
        host: str,
        call: Call[Request, Data],
        request: Request,
        watch: Watch | None = None,
        on_stall: StallNotice | None = None,
    ) -> HostAnswer[Data]:
        """Return the Answer of a long job; parameters as for Fleet.ask."""

    def deploying(
        self, opts: dict[str, Any], notify: slots.Notify, purpose: str
    ) -> contextlib.AbstractContextManager[slots.Slots]:
        """Hold the slot for the deployment of a guest."""


class SingleJobs:
    """One job for each guest."""

    def ask(
        self,
        fleet: Fleet,
        host: str,
        call: Call[Request, Data],
        request: Request,
        watch: Watch | None = None,
        on_stall: StallNotice | None = None,
    ) -> HostAnswer[Data]:
        """See Jobs."""
        return call.reply(fleet, host, request, long=True, watch=watch, on_stall=on_stall)

    def deploying(
        self, opts: dict[str, Any], notify: slots.Notify, purpose: str
    ) -> contextlib.AbstractContextManager[slots.Slots]:
        """See Jobs."""
        return slots.deploying(opts, notify, purpose)


SINGLE_JOBS = SingleJobs()


@dataclass
class _PendingCall:
    """A call in the queue, with its Answer or its error."""

    request: Message
    watch: Watch | None
    on_stall: StallNotice | None
    answer: HostAnswer[Any] | None = None
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.answer is not None or self.error is not None

    def get(self) -> HostAnswer[Any]:
        """Return the answer of a completed call."""
        if self.answer is None:
            raise self.error or errors.OperationFailed("the call was not submitted")
        return self.answer


@dataclass
class _HostQueue:
    """The calls that wait for one function of one host. submitted_count: how many were
    submitted."""

    waiting: list[_PendingCall] = field(default_factory=list)
    submitted_count: int = 0
    busy: bool = False


class BatchedJobs:
    """One job for all guests that wait for a host. at_once: how many jobs that create guests run at
    a time; each processes its guests one after the other. coming: host to the number of expected
    guests; when all have arrived, the job starts."""

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
        call: Call[Request, Data],
        request: Request,
        watch: Watch | None = None,
        on_stall: StallNotice | None = None,
    ) -> HostAnswer[Data]:
        """See Jobs. The first caller submits the calls of all that have arrived."""
        own_call = _PendingCall(request, watch, on_stall)
        with self._changed:
            queue = self._queues.setdefault((host, call.name), _HostQueue())
            queue.waiting.append(own_call)
            self._changed.notify_all()
            self._changed.wait_for(lambda: own_call.is_done or not queue.busy)
            if own_call.is_done:
                return own_call.get()
            queue.busy = True
        self._run_batches(fleet, host, call, queue, own_call)
        return own_call.get()

    def deploying(
        self, opts: dict[str, Any], notify: slots.Notify, purpose: str
    ) -> contextlib.AbstractContextManager[slots.Slots]:
        """See Jobs: the job holds the slot."""
        return contextlib.nullcontext(slots.Slots(()))

    def _run_batches(
        self,
        fleet: Fleet,
        host: str,
        call: Call[Any, Any],
        queue: _HostQueue,
        own_call: _PendingCall,
    ) -> None:
        """Run jobs until the own call is answered; then the next caller continues."""
        try:
            while not own_call.is_done:
                self._run_batch(fleet, host, call, queue)
        finally:
            with self._changed:
                # a call that failed before its job was submitted is not submitted by other callers
                queue.waiting = [waiting for waiting in queue.waiting if waiting is not own_call]
                queue.busy = False
                self._changed.notify_all()

    def _wait_for_more(self, queue: _HostQueue, host: str) -> None:
        """Wait until no call has arrived for a moment, or all expected calls have."""
        arrived, deadline_s = 0, time.monotonic() + MAX_GATHER_S
        expected = self.coming.get(host)
        enough = MAX_BATCH if expected is None else min(MAX_BATCH, expected - queue.submitted_count)
        with self._changed:
            while arrived < len(queue.waiting) < enough and time.monotonic() < deadline_s:
                arrived = len(queue.waiting)
                self._changed.wait_for(lambda: len(queue.waiting) >= enough, self._gather_s)

    def _run_batch(self, fleet: Fleet, host: str, call: Call[Any, Any], queue: _HostQueue) -> None:
        """Run one job with the calls in the queue, and store their answers."""
        with self._slot(fleet, host, call) as slot:
            self._wait_for_more(queue, host)
            with self._changed:
                batch, queue.waiting = queue.waiting[:MAX_BATCH], queue.waiting[MAX_BATCH:]
                queue.submitted_count += len(batch)
            try:
                answers = call.each(
                    fleet,
                    host,
                    [member.request for member in batch],
                    watch=_watch(batch),
                    on_stall=_combined_notice(batch, slot.free),
                )
                for member, answer in zip(batch, answers, strict=True):
                    member.answer = answer
            except BaseException as exc:
                for member in batch:
                    member.error = exc
            finally:
                with self._changed:
                    self._changed.notify_all()

    @contextlib.contextmanager
    def _slot(self, fleet: Fleet, host: str, call: Call[Any, Any]) -> Iterator[slots.Slots]:
        """Hold a slot of this object and one of the master during a job that creates guests."""
        if call.name != CREATE.name:
            yield slots.Slots(())
            return
        with self._slots, slots.deploying(fleet.opts, _ignore_wait, f"virt.init on {host}") as slot:
            yield slot


def _ignore_wait(_reason: str) -> None:
    """Print nothing: if many jobs wait, each line is a guest that is done."""


def _watch(calls: list[_PendingCall]) -> Watch | None:
    """Return a watch that forwards the steps of each call to its own watch: only warnings and long
    steps, because the lines of all other guests would hide them."""
    watches = [call.watch for call in calls if call.watch]

    def forward(tag: str, data: dict[str, Any]) -> None:
        for prefix, notify in watches:
            if tag.startswith(prefix) and (tag.endswith("/warning") or data.get("within_s")):
                notify(tag, data)

    return (_STEPS, forward) if watches else None


def _combined_notice(calls: list[_PendingCall], free: Callable[[], None]) -> StallNotice | None:
    """Return a notice with the shortest limits of all calls, which notifies all of them."""
    notices = [item.on_stall for item in calls if item.on_stall]
    if not notices:
        return None

    def notify_all() -> None:
        free()
        for _, _, notify in notices:
            notify()

    return min(item[0] for item in notices), min(item[1] for item in notices), notify_all
