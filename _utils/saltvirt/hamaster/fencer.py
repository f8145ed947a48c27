"""Fence agents at work, each in a thread of its own: the engine waits for none of them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.ha import facts
from saltvirt.ha.view import OFF, TIMED_OUT, Fence, FenceSeen
from saltvirt.hafence import agents
from saltvirt.hafence.agents import Outcome
from saltvirt.hafence.setting import FenceSetting
from saltvirt.hamaster.config import Member
from saltvirt.hamaster.remote import Remote

log = logging.getLogger(__name__)

# at one time: more would be hosts that a broken switch hides
MOST = 16


@dataclass(frozen=True)
class FenceEnd:
    """An attempt that ended."""

    fence: Fence
    agent: str
    outcome: Outcome


class Fencer:
    """off: what switches a host off by one of its fences. remote: what has other hosts run one;
    the engine, which hears them, sets it."""

    remote: Remote

    def __init__(
        self,
        members: Mapping[str, Member],
        off: Callable[[FenceSetting], Outcome] = agents.off,
    ) -> None:
        self._members, self._off = members, off
        self._lock, self._working = threading.Lock(), set[tuple[str, int]]()
        self._seen: dict[str, FenceSeen] = {}
        self._ends: queue.SimpleQueue[FenceEnd] = queue.SimpleQueue()

    @property
    def levels(self) -> dict[str, int]:
        """How many fences each host has."""
        return {name: len(one.fences) for name, one in self._members.items()}

    @property
    def seen(self) -> dict[str, FenceSeen]:
        """How the last attempt of each host ended."""
        with self._lock:
            return dict(self._seen)

    def ended(self) -> list[FenceEnd]:
        """Those that ended since this was last asked."""
        found = []
        while not self._ends.empty():
            found.append(self._ends.get())
        return found

    def begin(self, fence: Fence) -> bool:
        """Begins the attempt. False where it is not: that fence is at work still, or too many."""
        own = self._members[fence.host].fences if fence.host in self._members else ()
        work = (fence.host, fence.level)
        with self._lock:
            if fence.level >= len(own) or work in self._working or len(self._working) >= MOST:
                return False
            self._working.add(work)
        setting = own[fence.level]
        thread = threading.Thread(
            target=self._run, args=(fence, setting), name=f"fence {fence.host}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as exc:
            self._end(fence, setting, Outcome(TIMED_OUT, str(exc)))
        return True

    def _run(self, fence: Fence, setting: FenceSetting) -> None:
        try:
            outcome = self.remote.off(fence, setting) if setting.hosts else self._off(setting)
        except errors.VirtError as exc:
            outcome = Outcome(TIMED_OUT, exc.text)
        except Exception as exc:
            log.exception("the fence of %s", fence.host)
            outcome = Outcome(TIMED_OUT, f"internal error: {exc!r}")
        self._end(fence, setting, outcome)

    def _end(self, fence: Fence, setting: FenceSetting, outcome: Outcome) -> None:
        with self._lock:
            self._working.discard((fence.host, fence.level))
            if self._is_news(fence):
                self._seen[fence.host] = FenceSeen(fence.attempt, outcome.state)
        self._ends.put(FenceEnd(fence, setting.agent, outcome))

    def _is_news(self, fence: Fence) -> bool:
        """It was asked for the last question, to which no fence has seen the host off yet."""
        known = self._seen.get(fence.host)
        if known is None:
            return True
        new, old = _question(fence.attempt), _question(known.attempt)
        return new > old or (new == old and known.outcome != OFF)


def _question(attempt: str) -> tuple[int, ...]:
    """The term and the ballot."""
    return tuple(map(int, facts.question(attempt).split(".")))
