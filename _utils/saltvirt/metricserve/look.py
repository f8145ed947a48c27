"""What is read for who asks, and what is read from time to time: neither makes anyone wait."""

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


class Fresh(Generic[_T]):
    """Reads for each who asks, for several at once once. Whoever asks waits no longer than
    ``within_s``; what hangs is begun once, and asked for again when it has ended.

    read: raises VirtError.
    """

    def __init__(self, read: Callable[[], _T], within_s: float) -> None:
        self.read, self.within_s = read, within_s
        self._lock = threading.Lock()
        self._under_way: Future[_T] | None = None

    def __call__(self) -> _T:
        """Raises VirtError, ConnectionFailed where it takes too long, or cannot begin."""
        with self._lock:
            mine = self._under_way = self._under_way or self._begun()
        try:
            return mine.result(timeout=self.within_s)
        except NotInTime:
            raise errors.ConnectionFailed(f"no answer within {self.within_s:g} s") from None

    def _begun(self) -> Future[_T]:
        mine: Future[_T] = Future()
        try:
            threading.Thread(target=self._run, args=(mine,), daemon=True).start()
        except RuntimeError as exc:  # the system has no room for one
            raise errors.ConnectionFailed(str(exc)) from exc
        return mine

    def _run(self, mine: Future[_T]) -> None:
        try:
            mine.set_result(self.read())
        except errors.VirtError as exc:
            mine.set_exception(exc)
        except Exception as exc:
            log.exception("metrics")
            mine.set_exception(errors.OperationFailed(f"internal error: {exc!r}"))
        finally:
            with self._lock:
                self._under_way = None


# what was read counts for so many intervals, if a later look hangs
_INTERVALS = 3


class Look(Generic[_T]):
    """Reads every ``every_s`` seconds, in a thread of its own; 0: when it is told to, and what was
    read then counts for good. What cannot be read is said once in the log, and nothing old stands
    in for it, also while a look hangs."""

    def __init__(self, read: Callable[[], _T], every_s: float, what: str) -> None:
        self.read, self.every_s, self.what = read, every_s, what
        self._found: tuple[_T | None, float | None] = None, None
        self._expires_s = 0.0
        self._why = ""

    @property
    def found(self) -> tuple[_T | None, float | None]:
        """(what was read, when, in seconds since 1970); None where it could not be, or not for so
        long that it no longer counts."""
        return self._found if time.monotonic() < self._expires_s else (None, None)

    def begin(self, stop: threading.Event) -> None:
        """Until it is stopped."""
        threading.Thread(target=self._run, args=(stop,), daemon=True).start()

    def _run(self, stop: threading.Event) -> None:
        try:
            while True:
                self.look()
                if stop.wait(self.every_s):
                    return
        except errors.StaleLibrary:
            stop.set()

    def look(self) -> None:
        """Reads once. Raises StaleLibrary."""
        why: Exception | None = None
        try:
            self._found = self.read(), time.time()
            lasts_s = _INTERVALS * self.every_s if self.every_s else math.inf
            self._expires_s = time.monotonic() + lasts_s
        except errors.StaleLibrary:
            raise
        except Exception as exc:
            self._found, why = (None, None), exc
        if why and str(why) != self._why:
            unforeseen = None if isinstance(why, errors.VirtError) else why
            log.error("metrics: %s: %s", self.what, why, exc_info=unforeseen)
        self._why = str(why or "")
