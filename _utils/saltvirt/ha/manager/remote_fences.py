"""Fences that run on other hosts, through their agents, because these hosts reach the management
network."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Any

from saltvirt import errors, sanitize
from saltvirt.ha.fencing import agents
from saltvirt.ha.fencing.agents import FenceOutcome
from saltvirt.ha.fencing.setting import FenceReply, FenceRequest, FenceSetting
from saltvirt.ha.model.view import OFF, ON, TIMED_OUT, Fence
from saltvirt.ha.transport import frames

# timeout for off and status, and the messages
TIMEOUT_S = 2 * agents.AGENT_TIMEOUT_S + 10
_POLL_S = 0.5
_SHOWN = 300


class RemoteFences:
    """send: sends a message to a host. hears: whether a host is heard now. Each request waits in a
    thread of its own."""

    def __init__(
        self, send: Callable[[str, str, dict[str, Any]], None], hears: Callable[[str], bool]
    ) -> None:
        self._send, self._hears = send, hears
        self._pending: dict[tuple[str, str, str], queue.SimpleQueue[FenceOutcome]] = {}

    def off(self, fence: Fence, setting: FenceSetting) -> FenceOutcome:
        """Return the outcome of the first host that reports it as off. A host that is gone is
        skipped."""
        return agents.try_hosts(setting.hosts, lambda host: self._ask(host, fence, setting))

    def handle_reply(self, host: str, body: dict[str, Any]) -> None:
        """Handle a host's reply, if it belongs to a request. Raises BadAnswer."""
        reply = FenceReply.from_answer(body, host)
        if reply.state not in (OFF, ON, TIMED_OUT):
            raise errors.BadAnswer(f"{host} reported the unknown fence state {reply.state[:20]!r}")
        reply_queue = self._pending.get((host, reply.host, reply.attempt))
        if reply_queue is not None:
            reply_queue.put(FenceOutcome(reply.state, sanitize.one_line(reply.message)[:_SHOWN]))

    def _ask(self, host: str, fence: Fence, setting: FenceSetting) -> FenceOutcome:
        if not self._hears(host):
            raise errors.ConnectionFailed("the host does not respond")
        key = (host, fence.host, fence.attempt)
        reply_queue = self._pending[key] = queue.SimpleQueue()
        try:
            request = FenceRequest(fence.host, fence.attempt, setting)
            self._send(host, frames.FENCE, request.to_answer())
            end_s = time.monotonic() + TIMEOUT_S
            while time.monotonic() < end_s:
                try:
                    return reply_queue.get(timeout=_POLL_S)
                except queue.Empty:
                    if not self._hears(host):
                        raise errors.ConnectionFailed(f"lost the connection to {host}") from None
            raise errors.ConnectionFailed(f"no answer within {TIMEOUT_S} s")
        finally:
            del self._pending[key]
