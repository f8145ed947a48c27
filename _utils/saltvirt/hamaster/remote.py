"""Fences that the agents of other hosts run, which reach the management board."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Any

from saltvirt import errors, plain
from saltvirt.ha.view import OFF, ON, TIMED_OUT, Fence
from saltvirt.hafence import agents
from saltvirt.hafence.agents import Outcome
from saltvirt.hafence.setting import FenceAsked, FenceSetting, FenceTold
from saltvirt.hatalk import frames

# off and status, and what it takes to tell
PATIENCE_S = 2 * agents.CALL_S + 10
_LOOK_S = 0.5
_SHOWN = 300


class Remote:
    """tell: says a word to a host. hears: whether a host is heard now. Each question waits in a
    thread of its own."""

    def __init__(
        self, tell: Callable[[str, str, dict[str, Any]], None], hears: Callable[[str], bool]
    ) -> None:
        self._tell, self._hears = tell, hears
        self._waiting: dict[tuple[str, str, str], queue.SimpleQueue[Outcome]] = {}

    def off(self, fence: Fence, setting: FenceSetting) -> Outcome:
        """The first of its hosts that sees it off. One that is gone is passed over."""
        return agents.by_first(setting.hosts, lambda host: self._ask(host, fence, setting))

    def answered(self, host: str, body: dict[str, Any]) -> None:
        """What a host told; it is believed for what it was asked. Raises BadAnswer."""
        told = FenceTold.from_answer(body, host)
        if told.state not in (OFF, ON, TIMED_OUT):
            raise errors.BadAnswer(f"{host} told that a fence ended {told.state[:20]!r}")
        waiting = self._waiting.get((host, told.host, told.attempt))
        if waiting is not None:
            waiting.put(Outcome(told.state, plain.line(told.words)[:_SHOWN]))

    def _ask(self, host: str, fence: Fence, setting: FenceSetting) -> Outcome:
        if not self._hears(host):
            raise errors.ConnectionFailed("it is not heard")
        key = (host, fence.host, fence.attempt)
        waiting = self._waiting[key] = queue.SimpleQueue()
        try:
            asked = FenceAsked(fence.host, fence.attempt, setting)
            self._tell(host, frames.FENCE, asked.to_answer())
            end_s = time.monotonic() + PATIENCE_S
            while time.monotonic() < end_s:
                try:
                    return waiting.get(timeout=_LOOK_S)
                except queue.Empty:
                    if not self._hears(host):
                        raise errors.ConnectionFailed("it is lost") from None
            raise errors.ConnectionFailed(f"it did not answer within {PATIENCE_S} s")
        finally:
            del self._waiting[key]
