"""Progress, speed and remaining time of long operations."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from saltvirt.units import human_bytes


class StepReporter(Protocol):
    """Reports a step of an operation."""

    def __call__(self, step: str, message: str, /, **data: Any) -> object: ...


INTERVAL_S = 1.0


class ProgressReporter:
    """A callable (done, total), in bytes, that reports progress at most once a second.

    report_step: as in guest_builder.Tools. action: describes the operation. clock: seconds, for
    tests.
    """

    def __init__(
        self,
        report_step: StepReporter,
        step: str,
        action: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report_step, self._step, self._action, self._clock = report_step, step, action, clock
        self._began_s = self._reported_s = clock()

    def __call__(self, done: int, total: int | None) -> None:
        now = self._clock()
        is_final = done == total and self._reported_s > self._began_s
        if now - self._reported_s < INTERVAL_S and not is_final:
            return
        self._reported_s, speed = now, done / (now - self._began_s)
        if not total:  # the total is unknown
            text = f"{self._action}: {human_bytes(done)}, {speed / 2**20:.0f} MiB/s"
            self._report_step(self._step, text, percent=0, speed_bytes=int(speed))
            return
        percent = int(done * 100 // total)
        left_s = (total - done) / speed if speed else None
        text = f"{self._action}: {percent} %, {speed / 2**20:.0f} MiB/s"
        if left_s is not None:
            text += f", {left_s:.0f} s left"
        self._report_step(self._step, text, percent=percent, speed_bytes=int(speed), left_s=left_s)
