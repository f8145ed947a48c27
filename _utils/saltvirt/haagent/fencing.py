"""Fences that this host runs for a master, because it reaches the management board."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from saltvirt import errors, plain
from saltvirt.ha import facts
from saltvirt.ha.facts import ArrivedCall
from saltvirt.ha.view import TIMED_OUT
from saltvirt.hafence import agents, setting
from saltvirt.hafence.agents import Outcome
from saltvirt.hafence.setting import FenceAsked, FenceSetting, FenceTold

log = logging.getLogger(__name__)

Tell = Callable[[str, FenceTold], None]


class Fencing:
    """host: this one. calls: the last call of each master. fresh_s: how old it may be. tell: says a
    master how a fence ended."""

    def __init__(
        self,
        host: str,
        calls: Callable[[], Mapping[str, ArrivedCall]],
        clock: Callable[[], float],
        fresh_s: float,
        tell: Tell,
        off: Callable[[FenceSetting], Outcome] = agents.off,
    ) -> None:
        self._host, self._calls, self._clock, self._fresh_s = host, calls, clock, fresh_s
        self._tell, self._off = tell, off
        self._guard, self._working = threading.Lock(), set[str]()

    def asked(self, master: str, body: dict[str, Any]) -> None:
        """Runs it in a thread of its own, and tells how it ended. Raises BadAnswer."""
        asked = FenceAsked.from_answer(body, master)
        try:
            setting.checked("fence", asked.fence)
            self._permitted(master, asked)
        except errors.VirtError as exc:
            self._told(master, asked, Outcome(TIMED_OUT, exc.text))
            return
        args = (master, asked)
        name = f"fence {asked.host}"
        try:
            threading.Thread(target=self._run, args=args, name=name, daemon=True).start()
        except RuntimeError as exc:
            self._ended(master, asked, Outcome(TIMED_OUT, str(exc)))

    def _permitted(self, master: str, asked: FenceAsked) -> None:
        """A question may have waited until it was wrong: the master must ask still to give up that
        host, in what was last heard of it. Raises OperationFailed."""
        arrived = self._calls().get(master)
        if asked.host == self._host:
            raise errors.OperationFailed("it is that host itself")
        if arrived is None or not (arrived.call.leading and self._is_fresh(arrived)):
            raise errors.OperationFailed(f"{master} is not heard to lead")
        one = arrived.call.ballots.get(asked.host)
        if one is None or facts.question(asked.attempt) != f"{one.term}.{one.ballot}":
            raise errors.OperationFailed(f"{asked.host} is not to be given up")
        with self._guard:
            if asked.host in self._working:
                raise errors.OperationFailed("a fence of it is at work still")
            self._working.add(asked.host)

    def _is_fresh(self, arrived: ArrivedCall) -> bool:
        return self._clock() - arrived.at_s < self._fresh_s

    def _run(self, master: str, asked: FenceAsked) -> None:
        outcome = Outcome(TIMED_OUT, "internal error")
        try:
            words = (plain.line(one) for one in (master, asked.host, asked.fence.agent))
            log.warning("%s has %s fenced by %s", *words)
            outcome = self._off(asked.fence)
        except (errors.VirtError, OSError) as exc:
            outcome = Outcome(TIMED_OUT, str(exc))
        finally:
            self._ended(master, asked, outcome)

    def _ended(self, master: str, asked: FenceAsked, outcome: Outcome) -> None:
        with self._guard:
            self._working.discard(asked.host)
        self._told(master, asked, outcome)

    def _told(self, master: str, asked: FenceAsked, outcome: Outcome) -> None:
        words = (plain.line(one) for one in (asked.host, outcome.state, outcome.words))
        log.warning("fence of %s: %s %s", *words)
        self._tell(master, FenceTold(asked.host, asked.attempt, outcome.state, outcome.words))
