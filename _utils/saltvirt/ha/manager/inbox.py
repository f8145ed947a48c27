"""Messages from the hosts: the last heartbeat of each, and all others in the order of arrival from
each host. A host, which may be hostile, displaces no message of another host."""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Callable, Collection
from typing import Any

from saltvirt import errors, schema
from saltvirt.ha.model.messages import Heartbeat, ReceivedHeartbeat
from saltvirt.ha.transport import frames

# maximum number of messages of a host that wait; then the oldest is dropped
MAX_MESSAGES = 500
# maximum number of lines of a host in the journal, which has a limited size
JOURNAL_LINES, _JOURNAL_SPAN_S = 1000, 3600

log = logging.getLogger(__name__)


class MasterInbox:
    """Filled by the network's thread, emptied by the engine's thread."""

    def __init__(self, members: Collection[str], clock: Callable[[], float]) -> None:
        self.members, self.clock = frozenset(members), clock
        self._read = {host: schema.CachedReader(Heartbeat) for host in self.members}
        self._beats: dict[str, ReceivedHeartbeat] = {}
        self._messages: dict[str, collections.deque[tuple[str, dict[str, Any]]]] = {
            host: collections.deque(maxlen=MAX_MESSAGES) for host in sorted(self.members)
        }
        # host to the start of its span and the number of its lines since
        self._lines: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def receive(self, host: str, kind: str, body: dict[str, Any]) -> None:
        """Store a message of a host, whose name is verified. Raises BadAnswer if it cannot be
        read."""
        if host not in self.members:
            raise errors.BadAnswer(f"{host} is not a member of virt:ha")
        if kind != frames.BEAT:
            if kind != frames.JOURNAL or self._may_journal(host):
                self._messages[host].append((kind, body))
            return
        beat = self._read[host].read(body, host)
        if beat.host != host:
            raise errors.BadAnswer(f"{host} sent a heartbeat of {beat.host}")
        at_s = self.clock()
        with self._lock:
            previous = self._beats.get(host)
            if previous is None or previous.beat.boot != beat.boot or previous.beat.seq < beat.seq:
                self._beats[host] = ReceivedHeartbeat(beat, at_s)

    def _may_journal(self, host: str) -> bool:
        """Count a line of the host for the journal; return whether it is not one too many."""
        now_s = self.clock()
        start_s, count = self._lines.get(host, (now_s, 0))
        if now_s - start_s >= _JOURNAL_SPAN_S:
            start_s, count = now_s, 0
        self._lines[host] = start_s, count + 1
        if count == JOURNAL_LINES:
            log.warning("%s: more than %s lines for the journal in an hour", host, JOURNAL_LINES)
        return count < JOURNAL_LINES

    def beats(self) -> dict[str, ReceivedHeartbeat]:
        """Return the last heartbeat of each host."""
        with self._lock:
            return dict(self._beats)

    def take_messages(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return (host, kind, body) of all messages since the last call, except heartbeats."""
        messages = []
        for host, waiting in self._messages.items():
            while waiting:
                messages.append((host, *waiting.popleft()))
        return messages
