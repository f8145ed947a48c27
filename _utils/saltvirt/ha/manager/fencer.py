"""Run fence agents, each in a thread of its own, so that the engine waits for none of them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.ha.fencing import agents
from saltvirt.ha.fencing.agents import FenceOutcome
from saltvirt.ha.fencing.setting import FenceSetting
from saltvirt.ha.manager.config import Member
from saltvirt.ha.manager.remote_fences import RemoteFences
from saltvirt.ha.model import messages
from saltvirt.ha.model.view import OFF, TIMED_OUT, Fence, FenceResult

log = logging.getLogger(__name__)

# maximum number at one time: more would be hosts behind a broken switch
MAX_FENCES = 16


@dataclass(frozen=True)
class FenceEnd:
    """An attempt that has ended."""

    fence: Fence
    agent: str
    outcome: FenceOutcome


class FenceAgentPool:
    """off: switches a host off with one of its fences. remote: has other hosts run a fence; the
    engine, which hears these hosts, sets it."""

    remote: RemoteFences

    def __init__(
        self,
        members: Mapping[str, Member],
        off: Callable[[FenceSetting], FenceOutcome] = agents.off,
    ) -> None:
        self._members, self._off = members, off
        self._lock, self._running = threading.Lock(), set[tuple[str, int]]()
        self._results: dict[str, FenceResult] = {}
        self._finished: queue.SimpleQueue[FenceEnd] = queue.SimpleQueue()

    @property
    def levels(self) -> dict[str, int]:
        """The number of fences of each host."""
        return {name: len(member.fences) for name, member in self._members.items()}

    @property
    def results(self) -> dict[str, FenceResult]:
        """The result of the last attempt for each host."""
        with self._lock:
            return dict(self._results)

    def take_finished(self) -> list[FenceEnd]:
        """Return the attempts that have ended since the last call."""
        finished = []
        while not self._finished.empty():
            finished.append(self._finished.get())
        return finished

    def begin(self, fence: Fence) -> bool:
        """Start an attempt. Return False if that fence is still running, or too many are."""
        levels = self._members[fence.host].fences if fence.host in self._members else ()
        key = (fence.host, fence.level)
        with self._lock:
            if (
                fence.level >= len(levels)
                or key in self._running
                or len(self._running) >= MAX_FENCES
            ):
                return False
            self._running.add(key)
        setting = levels[fence.level]
        thread = threading.Thread(
            target=self._run, args=(fence, setting), name=f"fence {fence.host}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as exc:
            self._finish(fence, setting, FenceOutcome(TIMED_OUT, str(exc)))
        return True

    def _run(self, fence: Fence, setting: FenceSetting) -> None:
        try:
            outcome = self.remote.off(fence, setting) if setting.hosts else self._off(setting)
        except errors.VirtError as exc:
            outcome = FenceOutcome(TIMED_OUT, exc.text)
        except Exception as exc:
            log.exception("the fence of %s", fence.host)
            outcome = FenceOutcome(TIMED_OUT, f"internal error: {exc!r}")
        self._finish(fence, setting, outcome)

    def _finish(self, fence: Fence, setting: FenceSetting, outcome: FenceOutcome) -> None:
        with self._lock:
            self._running.discard((fence.host, fence.level))
            if self._is_latest(fence):
                self._results[fence.host] = FenceResult(fence.attempt, outcome.state)
        self._finished.put(FenceEnd(fence, setting.agent, outcome))

    def _is_latest(self, fence: Fence) -> bool:
        """Whether the attempt is for the latest vote, and no fence has reported the host as off for
        it yet."""
        previous = self._results.get(fence.host)
        if previous is None:
            return True
        new, old = _vote_stamp(fence.attempt), _vote_stamp(previous.attempt)
        return new > old or (new == old and previous.outcome != OFF)


def _vote_stamp(attempt: str) -> tuple[int, ...]:
    """Return the term and the ballot."""
    return tuple(map(int, messages.question(attempt).split(".")))
