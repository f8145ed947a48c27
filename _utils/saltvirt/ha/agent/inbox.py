"""The last messages of the other machines, as input for the agent's step."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from saltvirt import errors, schema
from saltvirt.ha.model.messages import Heartbeat, LeaderMessage, ReceivedHeartbeat, ReceivedMessage
from saltvirt.ha.transport import frames

_FROM_MASTERS = (frames.DEFINITION, frames.FENCE)
_REQUEST_KINDS = (*_FROM_MASTERS, frames.INCOMING, frames.INCOMING_ANSWER)


@dataclass(frozen=True)
class PeerRequest:
    """A frame that requires an answer, or is one. at_s: when it arrived."""

    sender: str
    kind: str
    body: dict[str, Any]
    at_s: float


class AgentInbox:
    """masters: their names. clock: of this boot. wake: called if a message must not wait for the
    next heartbeat. ``on_frame`` is called on the network's thread; an exception ends the
    connection."""

    MAX_REQUESTS = 1000

    def __init__(
        self,
        masters: Collection[str],
        clock: Callable[[], float],
        wake: Callable[[], object] = lambda: None,
    ) -> None:
        self._masters, self._clock, self._wake = masters, clock, wake
        self.beats: dict[str, ReceivedHeartbeat] = {}
        self.leader_messages: dict[str, ReceivedMessage] = {}
        self.requests: queue.Queue[PeerRequest] = queue.Queue(self.MAX_REQUESTS)
        self._read_beat: dict[str, schema.CachedReader[Heartbeat]] = {}
        self._first_s: dict[str, float] = {}

    def on_frame(self, sender: str, kind: str, body: dict[str, Any]) -> None:
        """Store a message. Raises BadAnswer if it does not match its kind."""
        now_s = self._clock()
        if kind == frames.BEAT:
            beat = self._read_beat.setdefault(sender, schema.CachedReader(Heartbeat)).read(
                body, sender
            )
            old = self.beats.get(sender)
            if old is None or (old.beat.boot, old.beat.seq) <= (beat.boot, beat.seq):
                self.beats = {**self.beats, sender: ReceivedHeartbeat(beat, now_s)}
        elif kind == frames.CALL:
            message = LeaderMessage.from_answer(body, sender)
            for name in message.registry.guests if message.registry else ():
                self._first_s.setdefault(name, now_s)
            self.leader_messages = {**self.leader_messages, sender: ReceivedMessage(message, now_s)}
        elif kind in _REQUEST_KINDS and (kind not in _FROM_MASTERS or sender in self._masters):
            self._enqueue(PeerRequest(sender, kind, body, now_s))

    def _enqueue(self, request: PeerRequest) -> None:
        try:
            self.requests.put_nowait(request)
        except queue.Full as exc:
            raise errors.OperationFailed("too many requests at the same time") from exc
        self._wake()

    def believable(
        self, observed_s: float | None, recorded_names: Collection[str]
    ) -> dict[str, ReceivedMessage]:
        """Return the leaders' messages. Leave out a registry that names a guest of which the agent
        does not know yet whether it is on this host: using that registry would report that it is
        not.

        observed_s: the time up to which libvirt's domains are known. recorded_names: guests that
        are already known.
        """
        return {
            name: self._read(arrived, observed_s, recorded_names)
            for name, arrived in self.leader_messages.items()
        }

    def _read(
        self, arrived: ReceivedMessage, observed_s: float | None, recorded_names: Collection[str]
    ) -> ReceivedMessage:
        registry = arrived.message.registry
        new = set(registry.guests) - set(recorded_names) if registry else set()
        is_observed = all(
            observed_s is not None and observed_s > self._first_s[name] for name in new
        )
        return (
            arrived
            if is_observed
            else replace(arrived, message=replace(arrived.message, registry=None))
        )
