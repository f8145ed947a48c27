"""Answer the requests of several threads in batches."""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class QueuedRequest(Future[Answer], Generic[Request, Answer]):
    """A request in the queue, and the future of its answer."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request, self.joined_s = request, time.monotonic()


class BatchQueue(abc.ABC, Generic[Request, Answer]):
    """A queue of requests that are answered in batches, one batch at a time. One of the waiting
    threads runs the batch for all of them.

    A subclass defines run_batch. changed: guards the queue; notified of each change.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.waiting: list[QueuedRequest[Request, Answer]] = []
        self.is_busy = False

    @abc.abstractmethod
    def run_batch(self, own_request: Request) -> None:
        """Take a batch and answer it. own_request: of the thread that runs the batch."""

    def submit(self, request: Request, on_join: Callable[[], object] = lambda: None) -> Answer:
        """Return the answer to the request, from a batch that starts after this call. on_join:
        called when the request is in the queue. Raises what run_batch raises or fails with."""
        own_entry = QueuedRequest[Request, Answer](request)
        with self.changed:
            self.waiting.append(own_entry)
            on_join()
            self.changed.notify_all()
            self.changed.wait_for(lambda: own_entry.done() or not self.is_busy)
            if own_entry.done():
                return own_entry.result()
            self.is_busy = True
        try:
            while not own_entry.done():
                self.run_batch(request)
        finally:
            with self.changed:
                # if its batch failed before it was taken, no other thread runs the request
                self.waiting = [queued for queued in self.waiting if queued is not own_entry]
                self.is_busy = False
                self.changed.notify_all()
        return own_entry.result()

    def take_batch(self, size: int | None = None) -> list[QueuedRequest[Request, Answer]]:
        """Remove the first requests from the queue. size: how many at most; None: all."""
        with self.changed:
            batch = self.waiting[:size]
            del self.waiting[:size]
        return batch

    def answer(
        self, batch: Sequence[QueuedRequest[Request, Answer]], answers: Sequence[Answer]
    ) -> None:
        """Store one answer for each request of the batch."""
        for queued, answer in zip(batch, answers, strict=True):
            queued.set_result(answer)
        with self.changed:
            self.changed.notify_all()

    def fail(self, batch: Sequence[QueuedRequest[Request, Answer]], error: BaseException) -> None:
        """Raise the error for each request of the batch that has no answer."""
        for queued in batch:
            if not queued.done():
                queued.set_exception(error)
        with self.changed:
            self.changed.notify_all()
