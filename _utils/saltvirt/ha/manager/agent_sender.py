"""The engine's connections to the agents."""

from __future__ import annotations

import logging
from typing import Any

from saltvirt.ha.manager.config import HaConfig
from saltvirt.ha.transport import frames, tls
from saltvirt.ha.transport.peer_connection import OnFrame, PeerTiming
from saltvirt.ha.transport.peer_network import PeerNetwork

log = logging.getLogger(__name__)

# number of heartbeats after an activity during which messages are read sooner
_HURRIES_BEATS = 5


class AgentSender:
    """credentials: the master's certificate."""

    def __init__(self, config: HaConfig, credentials: tls.PeerCredentials) -> None:
        self._config, self._credentials = config, credentials
        self._network: PeerNetwork | None = None
        # the last frame and its input: most hosts get the same message
        self._last_frame: tuple[str, dict[str, Any], frames.Frame] | None = None

    def begin(self, on_message: OnFrame) -> None:
        """Connect to all members. on_message: called with each message of a host."""
        beat_s, suspect_s = self._config.policy.beat_s, self._config.policy.suspect_s
        timing = PeerTiming(
            beat_s=beat_s, quiet_s=suspect_s / 2, silent_s=2 * suspect_s, gather_s=beat_s / 2
        )
        self._network = PeerNetwork(self._credentials, on_message, timing)
        for name, member in self._config.members.items():
            self._network.add_peer(name, member.address, member.port)

    def send(self, host: str, kind: str, body: dict[str, Any]) -> None:
        """Send a message as soon as there is a connection. Thread-safe."""
        if self._network is None:
            return
        last = self._last_frame
        if last is None or last[0] != kind or last[1] is not body:
            try:
                last = self._last_frame = kind, body, frames.frame(kind, body)
            except frames.BadFrame as exc:
                log.error("%s", exc)
                return
        if kind == frames.CALL and (body.get("registry") or body.get("ballots")):
            self._network.hurry(_HURRIES_BEATS * self._config.policy.beat_s)
        self._network.send(host, last[2])

    def end(self) -> None:
        """Close all connections."""
        if self._network is not None:
            self._network.close()
