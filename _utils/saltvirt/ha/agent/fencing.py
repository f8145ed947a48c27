"""Fences that this host runs for a master, because it reaches the management board."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from saltvirt import errors, sanitize
from saltvirt.ha.fencing import agents, setting
from saltvirt.ha.fencing.agents import FenceOutcome
from saltvirt.ha.fencing.setting import FenceReply, FenceRequest, FenceSetting
from saltvirt.ha.model import messages
from saltvirt.ha.model.messages import ReceivedMessage
from saltvirt.ha.model.view import TIMED_OUT

log = logging.getLogger(__name__)

Notify = Callable[[str, FenceReply], None]


class FenceRunner:
    """host: this one. calls: the last call of each master. fresh_s: how old it may be. tell: says a
    master how a fence ended."""

    def __init__(
        self,
        host: str,
        leader_messages: Callable[[], Mapping[str, ReceivedMessage]],
        clock: Callable[[], float],
        fresh_s: float,
        notify: Notify,
        off: Callable[[FenceSetting], FenceOutcome] = agents.off,
    ) -> None:
        self._host, self._leader_messages, self._clock, self._fresh_s = (
            host,
            leader_messages,
            clock,
            fresh_s,
        )
        self._notify, self._off = notify, off
        self._guard, self._working = threading.Lock(), set[str]()

    def handle(self, master: str, body: dict[str, Any]) -> None:
        """Runs it in a thread of its own, and tells how it ended. Raises BadAnswer."""
        request = FenceRequest.from_answer(body, master)
        try:
            setting.validate("fence", request.fence)
            self._check_permitted(master, request)
        except errors.VirtError as exc:
            self._report(master, request, FenceOutcome(TIMED_OUT, exc.text))
            return
        args = (master, request)
        name = f"fence {request.host}"
        try:
            threading.Thread(target=self._run, args=args, name=name, daemon=True).start()
        except RuntimeError as exc:
            self._finish(master, request, FenceOutcome(TIMED_OUT, str(exc)))

    def _check_permitted(self, master: str, request: FenceRequest) -> None:
        """A question may have waited until it was wrong: the master must ask still to give up that
        host, in what was last heard of it. Raises OperationFailed."""
        arrived = self._leader_messages().get(master)
        if request.host == self._host:
            raise errors.OperationFailed("it is that host itself")
        if arrived is None or not (arrived.message.leading and self._is_fresh(arrived)):
            raise errors.OperationFailed(f"{master} is not heard to lead")
        vote = arrived.message.ballots.get(request.host)
        if vote is None or messages.question(request.attempt) != f"{vote.term}.{vote.ballot}":
            raise errors.OperationFailed(f"{request.host} is not to be given up")
        with self._guard:
            if request.host in self._working:
                raise errors.OperationFailed("a fence of it is at work still")
            self._working.add(request.host)

    def _is_fresh(self, arrived: ReceivedMessage) -> bool:
        return self._clock() - arrived.at_s < self._fresh_s

    def _run(self, master: str, request: FenceRequest) -> None:
        outcome = FenceOutcome(TIMED_OUT, "internal error")
        try:
            names = (
                sanitize.one_line(name) for name in (master, request.host, request.fence.agent)
            )
            log.warning("%s has %s fenced by %s", *names)
            outcome = self._off(request.fence)
        except (errors.VirtError, OSError) as exc:
            outcome = FenceOutcome(TIMED_OUT, str(exc))
        finally:
            self._finish(master, request, outcome)

    def _finish(self, master: str, request: FenceRequest, outcome: FenceOutcome) -> None:
        with self._guard:
            self._working.discard(request.host)
        self._report(master, request, outcome)

    def _report(self, master: str, request: FenceRequest, outcome: FenceOutcome) -> None:
        fields = (
            sanitize.one_line(field) for field in (request.host, outcome.state, outcome.message)
        )
        log.warning("fence of %s: %s %s", *fields)
        self._notify(
            master, FenceReply(request.host, request.attempt, outcome.state, outcome.message)
        )
