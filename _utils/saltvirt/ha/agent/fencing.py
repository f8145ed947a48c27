"""Run fences for a master that does not reach the management network itself."""

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
    """host: this host. leader_messages: returns the last message of each master. fresh_s: its
    maximum age. notify: sends the result of a fence to a master."""

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
        """Run a fence in a thread of its own, and send the result. Raises BadAnswer."""
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
        """Raise OperationFailed unless the last message of the master still asks to fence that
        host: the request may be outdated."""
        arrived = self._leader_messages().get(master)
        if request.host == self._host:
            raise errors.OperationFailed("a host does not fence itself")
        if arrived is None or not (arrived.message.leading and self._is_fresh(arrived)):
            raise errors.OperationFailed(f"no current leader message from {master}")
        vote = arrived.message.ballots.get(request.host)
        if vote is None or messages.question(request.attempt) != f"{vote.term}.{vote.ballot}":
            raise errors.OperationFailed(f"{master} no longer asks to fence {request.host}")
        with self._guard:
            if request.host in self._working:
                raise errors.OperationFailed(f"a fence of {request.host} is already running")
            self._working.add(request.host)

    def _is_fresh(self, arrived: ReceivedMessage) -> bool:
        return self._clock() - arrived.at_s < self._fresh_s

    def _run(self, master: str, request: FenceRequest) -> None:
        outcome = FenceOutcome(TIMED_OUT, "internal error")
        try:
            names = (
                sanitize.one_line(name) for name in (master, request.host, request.fence.agent)
            )
            log.warning("fencing for %s: %s with %s", *names)
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
        log.warning("result of the fence of %s: %s %s", *fields)
        self._notify(
            master, FenceReply(request.host, request.attempt, outcome.state, outcome.message)
        )
