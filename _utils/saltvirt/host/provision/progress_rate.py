"""How far long work is, how fast it goes and how long it still takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from saltvirt.units import human_bytes

if TYPE_CHECKING:
    from saltvirt.host.provision.guest_builder import Say

EVERY_S = 1.0


class Pace:
    """A callable (done, total), in bytes, that tells of work at most once a second.

    say: (step, message, **data), as guest_builder.Tools has it. what: the work, for the message.
    clock: seconds, for tests.
    """

    def __init__(
        self, say: Say, step: str, what: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._step, self._what, self._clock = say, step, what, clock
        self._began = self._said = clock()

    def __call__(self, done: int, total: int | None) -> None:
        now = self._clock()
        ends = done == total and self._said > self._began
        if now - self._said < EVERY_S and not ends:
            return
        self._said, speed = now, done / (now - self._began)
        if not total:  # nobody knows how much there is
            text = f"{self._what}: {human_bytes(done)}, {speed / 2**20:.0f} MiB/s"
            self._say(self._step, text, percent=0, speed_bytes=int(speed))
            return
        percent = int(done * 100 // total)
        left_s = (total - done) / speed if speed else None
        text = f"{self._what}: {percent} %, {speed / 2**20:.0f} MiB/s"
        if left_s is not None:
            text += f", {left_s:.0f} s left"
        self._say(self._step, text, percent=percent, speed_bytes=int(speed), left_s=left_s)
