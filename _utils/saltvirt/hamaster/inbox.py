"""What came from the hosts: of each its last beat; the rest in the order in which it came."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Collection
from typing import Any

from saltvirt import errors, wire
from saltvirt.ha.facts import ArrivedBeat, Beat
from saltvirt.hatalk import frames

# so many words of hosts wait at most; then the oldest goes
MOST = 2000


class Inbox:
    """Filled by the thread that talks, emptied by the engine's."""

    def __init__(self, members: Collection[str], clock: Callable[[], float]) -> None:
        self.members, self.clock = frozenset(members), clock
        self._read = {host: wire.Again(Beat) for host in self.members}
        self._beats: dict[str, ArrivedBeat] = {}
        self._words: collections.deque[tuple[str, str, dict[str, Any]]] = collections.deque(
            maxlen=MOST
        )
        self._lock = threading.Lock()

    def hear(self, host: str, kind: str, body: dict[str, Any]) -> None:
        """What the host said, which has proven its name. Raises BadAnswer for what cannot be
        read."""
        if host not in self.members:
            raise errors.BadAnswer(f"{host} is no member of virt:ha")
        if kind != frames.BEAT:
            self._words.append((host, kind, body))
            return
        beat = self._read[host].read(body, host)
        if beat.host != host:
            raise errors.BadAnswer(f"{host} speaks in the name of {beat.host}")
        at_s = self.clock()
        with self._lock:
            known = self._beats.get(host)
            if known is None or known.beat.boot != beat.boot or known.beat.seq < beat.seq:
                self._beats[host] = ArrivedBeat(beat, at_s)

    def beats(self) -> dict[str, ArrivedBeat]:
        """The last beat of each host."""
        with self._lock:
            return dict(self._beats)

    def words(self) -> list[tuple[str, str, dict[str, Any]]]:
        """(host, kind, body) of all that came since this was last asked, but beats."""
        found = []
        while self._words:
            found.append(self._words.popleft())
        return found
