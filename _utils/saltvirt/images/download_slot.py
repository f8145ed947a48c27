"""Wait for a slot to copy an image from the master, which limits simultaneous copies."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from saltvirt import errors

# calls the ext_pillar virtkey
Ask = Callable[[dict[str, Any]], Mapping[str, Any] | None]

RENEW_S = 10
_MIN_PAUSE_S, _MAX_PAUSE_S = 2, 20
_ATTEMPTS = 5
# interval of messages while waiting, and timeout if no copy before this one ends
_REPORT_S, _STALL_TIMEOUT_S = 60, 3600


def slot_factory(ask: Ask, report: Callable[[str], object]) -> Callable[[str], DownloadSlot]:
    """A function that creates the DownloadSlot of an image's address."""
    return lambda source: DownloadSlot(source, ask, report)


class DownloadSlot:
    """One copy. ask: passes a dict to the ext_pillar ``virtkey`` and returns its answer. report:
    called with a sentence if the host has to wait."""

    def __init__(self, source: str, ask: Ask, report: Callable[[str], object]) -> None:
        self._source = source
        self._image = hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:40]
        self._ask = ask
        self._report = report
        self._last_request_s = 0.0

    def _queue_position(self, **extra: Any) -> int | None:
        """The number of copies before this one; None if the master does not limit them."""
        self._last_request_s = time.monotonic()
        return (self._ask({"copy": self._image, **extra}) or {}).get("turn")

    def _wait(self) -> None:
        reported_at: float | None = None
        failures, last_ahead, last_change_s = 0, None, time.monotonic()
        while True:
            try:
                ahead = self._queue_position()
            except Exception as exc:  # of Salt, whose classes this layer does not know
                failures += 1
                if failures >= _ATTEMPTS:
                    raise errors.ImageError(
                        f"cannot request a slot from the master to copy {self._source}: {exc}"
                    ) from exc
                ahead = 1
            if not ahead:
                return
            now = time.monotonic()
            if ahead != last_ahead:
                last_ahead, last_change_s = ahead, now
            if now - last_change_s > _STALL_TIMEOUT_S:
                raise errors.ImageError(
                    f"cannot copy {self._source}: {ahead} hosts copy from the master "
                    f"before this one, and none has finished within {_STALL_TIMEOUT_S} s"
                )
            if reported_at is None or now - reported_at > _REPORT_S:
                self._report(f"waiting for other hosts that copy from the master: {self._source}")
                reported_at = now
            time.sleep(min(_MAX_PAUSE_S, _MIN_PAUSE_S * ahead))

    def renew(self) -> None:
        """Tell the master periodically that the copy continues."""
        if time.monotonic() - self._last_request_s > RENEW_S:
            with contextlib.suppress(Exception):
                self._queue_position()

    def __enter__(self) -> DownloadSlot:
        self._wait()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        with contextlib.suppress(Exception):  # the master frees it by itself, only later
            self._queue_position(done=True)
