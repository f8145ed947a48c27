"""Read values on request or periodically, so that a slow read blocks no request."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from typing import Generic, TypeVar

from saltvirt import errors

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class OnDemandReader(Generic[_T]):
    """Reads once for all simultaneous requests. A request waits at most ``timeout_s``; a read that
    hangs is not started a second time.

    read: raises VirtError.
    """

    def __init__(self, read: Callable[[], _T], timeout_s: float) -> None:
        self.read, self.timeout_s = read, timeout_s
        self._lock = threading.Lock()
        self._under_way: Future[_T] | None = None

    def __call__(self) -> _T:
        """The value. Raises VirtError, and ConnectionFailed after a timeout or if the read cannot
        start."""
        with self._lock:
            future = self._under_way = self._under_way or self._start()
        try:
            return future.result(timeout=self.timeout_s)
        except NotInTime:
            raise errors.ConnectionFailed(f"no response within {self.timeout_s:g} s") from None

    def _start(self) -> Future[_T]:
        future: Future[_T] = Future()
        try:
            threading.Thread(target=self._run, args=(future,), daemon=True).start()
        except RuntimeError as exc:  # the system has no room for one
            raise errors.ConnectionFailed(str(exc)) from exc
        return future

    def _run(self, future: Future[_T]) -> None:
        try:
            future.set_result(self.read())
        except errors.VirtError as exc:
            future.set_exception(exc)
        except Exception as exc:
            log.exception("metrics")
            future.set_exception(errors.OperationFailed(f"internal error: {exc!r}"))
        finally:
            with self._lock:
                self._under_way = None


# intervals for which a value is valid if a later read hangs
_VALID_INTERVALS = 3


class PeriodicReader(Generic[_T]):
    """Reads every ``interval_s`` seconds in its own thread; 0: only by read_once, and the value is
    then valid forever.

    An error is logged once and invalidates the value. A value also expires while a read hangs.
    """

    def __init__(self, read: Callable[[], _T], interval_s: float, name: str) -> None:
        self.read, self.interval_s, self.name = read, interval_s, name
        self._last: tuple[_T | None, float | None] = None, None
        self._expires_s = 0.0
        self._last_error = ""

    @property
    def last(self) -> tuple[_T | None, float | None]:
        """(value, time in seconds since 1970); None after an error and when the value has
        expired."""
        return self._last if time.monotonic() < self._expires_s else (None, None)

    def begin(self, stop: threading.Event) -> None:
        """Read until the event is set."""
        threading.Thread(target=self._run, args=(stop,), daemon=True).start()

    def _run(self, stop: threading.Event) -> None:
        try:
            while True:
                self.read_once()
                if stop.wait(self.interval_s):
                    return
        except errors.StaleLibrary:
            stop.set()

    def read_once(self) -> None:
        """Read once. Raises StaleLibrary."""
        error: Exception | None = None
        try:
            self._last = self.read(), time.time()
            valid_s = _VALID_INTERVALS * self.interval_s if self.interval_s else math.inf
            self._expires_s = time.monotonic() + valid_s
        except errors.StaleLibrary:
            raise
        except Exception as exc:
            self._last, error = (None, None), exc
        if error and str(error) != self._last_error:
            unforeseen = None if isinstance(error, errors.VirtError) else error
            log.error("metrics: %s: %s", self.name, error, exc_info=unforeseen)
        self._last_error = str(error or "")
