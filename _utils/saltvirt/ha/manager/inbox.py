"""Messages from the hosts: the last heartbeat of each, and all others in the order of arrival."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Collection
from typing import Any

from saltvirt import errors, schema
from saltvirt.ha.model.messages import Heartbeat, ReceivedHeartbeat
from saltvirt.ha.transport import frames

# maximum number of messages that wait; then the oldest is dropped
MAX_MESSAGES = 2000


class MasterInbox:
    """Filled by the network's thread, emptied by the engine's thread."""

    def __init__(self, members: Collection[str], clock: Callable[[], float]) -> None:
        self.members, self.clock = frozenset(members), clock
        self._read = {host: schema.CachedReader(Heartbeat) for host in self.members}
        self._beats: dict[str, ReceivedHeartbeat] = {}
        self._messages: collections.deque[tuple[str, str, dict[str, Any]]] = collections.deque(
            maxlen=MAX_MESSAGES
        )
        self._lock = threading.Lock()

    def receive(self, host: str, kind: str, body: dict[str, Any]) -> None:
        """Store a message of a host, whose name is verified. Raises BadAnswer if it cannot be
        read."""
        if host not in self.members:
            raise errors.BadAnswer(f"{host} is not a member of virt:ha")
        if kind != frames.BEAT:
            self._messages.append((host, kind, body))
            return
        beat = self._read[host].read(body, host)
        if beat.host != host:
            raise errors.BadAnswer(f"{host} sent a heartbeat of {beat.host}")
        at_s = self.clock()
        with self._lock:
            previous = self._beats.get(host)
            if previous is None or previous.beat.boot != beat.boot or previous.beat.seq < beat.seq:
                self._beats[host] = ReceivedHeartbeat(beat, at_s)

    def beats(self) -> dict[str, ReceivedHeartbeat]:
        """Return the last heartbeat of each host."""
        with self._lock:
            return dict(self._beats)

    def take_messages(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return (host, kind, body) of all messages since the last call, except heartbeats."""
        messages = []
        while self._messages:
            messages.append(self._messages.popleft())
        return messages
