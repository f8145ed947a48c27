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
from dataclasses import dataclass
from typing import Any, TypeVar

from saltvirt.answers.calls import Call, HostAnswer
from saltvirt.fleet.client import Fleet, StallNotice, Watch
from saltvirt.operations.create.batch_queue import BatchQueue
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


class Jobs:
    """One job of a host for each guest."""

    def ask(
        self,
        fleet: Fleet,
        host: str,
        call: Call[Request, Data],
        request: Request,
        watch: Watch | None = None,
        on_stall: StallNotice | None = None,
    ) -> HostAnswer[Data]:
        """Return the answer of a long job; parameters as for Fleet.ask."""
        return call.reply(fleet, host, request, long=True, watch=watch, on_stall=on_stall)

    def deploying(
        self, opts: dict[str, Any], notify: slots.Notify, purpose: str
    ) -> contextlib.AbstractContextManager[slots.Slots]:
        """Hold the slot for the deployment of a guest."""
        return slots.deploying(opts, notify, purpose)


SINGLE_JOBS = Jobs()


class BatchedJobs(Jobs):
    """One job for all guests that wait for a host. at_once: how many jobs that create guests run at
    a time; each processes its guests one after the other. coming: host to the number of expected
    guests; when all have arrived, the job starts."""

    def __init__(self, at_once: int, gather_s: float = GATHER_S) -> None:
        self.coming: dict[str, int] = {}
        self._create_slots = threading.Semaphore(at_once)
        self._gather_s = gather_s
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
        """See Jobs."""
        queue = _HostQueue(host, call, self.coming.get(host), self._gather_s, self._create_slots)
        queue = self._queues.setdefault((host, call.name), queue)
        return queue.submit(_GuestCall(fleet, request, watch, on_stall))

    def deploying(
        self, opts: dict[str, Any], notify: slots.Notify, purpose: str
    ) -> contextlib.AbstractContextManager[slots.Slots]:
        """See Jobs: the job holds the slot."""
        return contextlib.nullcontext(slots.Slots())


@dataclass(frozen=True)
class _GuestCall:
    """A call for one guest."""

    fleet: Fleet
    request: Message
    watch: Watch | None
    on_stall: StallNotice | None


class _HostQueue(BatchQueue[_GuestCall, HostAnswer[Any]]):
    """The calls of one function of one host. expected: for how many guests the function is still to
    be called; None: unknown. create_slots: limits the jobs that create guests."""

    def __init__(
        self,
        host: str,
        call: Call[Any, Any],
        expected: int | None,
        gather_s: float,
        create_slots: threading.Semaphore,
    ) -> None:
        super().__init__()
        self._host, self._call, self.expected = host, call, expected
        self._gather_s, self._create_slots = gather_s, create_slots

    def run_batch(self, own_request: _GuestCall) -> None:
        """Run one job with the calls in the queue."""
        fleet = own_request.fleet
        with self._slot(fleet) as slot:
            self._wait_for_more()
            batch = self.take_batch(MAX_BATCH)
            calls = [queued.request for queued in batch]
            if self.expected is not None:
                self.expected -= len(batch)
            try:
                answers = self._call.each(
                    fleet,
                    self._host,
                    [call.request for call in calls],
                    watch=_watch(calls),
                    on_stall=_combined_notice(calls, slot.close),
                )
                self.answer(batch, answers)
            except BaseException as exc:
                self.fail(batch, exc)

    def _wait_for_more(self) -> None:
        """Wait until no call has arrived for a moment, or all expected calls have."""
        arrived, deadline_s = 0, time.monotonic() + MAX_GATHER_S
        enough = MAX_BATCH if self.expected is None else min(MAX_BATCH, self.expected)
        with self.changed:
            while arrived < len(self.waiting) < enough and time.monotonic() < deadline_s:
                arrived = len(self.waiting)
                self.changed.wait_for(lambda: len(self.waiting) >= enough, self._gather_s)

    @contextlib.contextmanager
    def _slot(self, fleet: Fleet) -> Iterator[slots.Slots]:
        """Hold a slot of BatchedJobs and one of the master during a job that creates guests."""
        if self._call.name != CREATE.name:
            yield slots.Slots()
            return
        purpose = f"virt.init on {self._host}"
        with self._create_slots, slots.deploying(fleet.opts, _ignore_wait, purpose) as slot:
            yield slot


def _ignore_wait(_reason: str) -> None:
    """Print nothing: if many jobs wait, each line is a guest that is done."""


def _watch(calls: list[_GuestCall]) -> Watch | None:
    """Return a watch that forwards the steps of each call to its own watch: only warnings and long
    steps, because the lines of all other guests would hide them."""
    watches = [call.watch for call in calls if call.watch]

    def forward(tag: str, data: dict[str, Any]) -> None:
        for prefix, notify in watches:
            if tag.startswith(prefix) and (tag.endswith("/warning") or data.get("within_s")):
                notify(tag, data)

    return (_STEPS, forward) if watches else None


def _combined_notice(calls: list[_GuestCall], free: Callable[[], None]) -> StallNotice | None:
    """Return a notice with the shortest limits of all calls, which notifies all of them."""
    notices = [item.on_stall for item in calls if item.on_stall]
    if not notices:
        return None

    def notify_all() -> None:
        free()
        for _, _, notify in notices:
            notify()

    return min(item[0] for item in notices), min(item[1] for item in notices), notify_all
