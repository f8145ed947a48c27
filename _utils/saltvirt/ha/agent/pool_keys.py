"""By what a host proves that a beat on a shared pool is its own.

Whoever is root on the storage, or on another client of it, can write files there. So each agent has
a key, which it tells its peers over TLS alone, and seals by it what it writes to pools. All keys
are in a file in memory, for the agent's restart while the network is away.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from saltvirt import errors
from saltvirt.ha.agent import store
from saltvirt.ha.model.messages import Heartbeat, ReceivedHeartbeat
from saltvirt.schema import Message

MAC = "mac"
_BYTES = 32


@dataclass(frozen=True)
class PoolKeyFile(Message):
    """The file. own: of this host; peers: as each has told it."""

    own: str
    peers: dict[str, str] = field(default_factory=dict)


class PoolKeys:
    """path: of the file. One that cannot be read is made anew: peers tell their keys again."""

    def __init__(self, path: str) -> None:
        self._path = path
        stored = None
        with contextlib.suppress(errors.BadAnswer, OSError):
            data = store.read(path)
            stored = None if data is None else PoolKeyFile.from_answer(data, path)
        self._keys = stored or PoolKeyFile(secrets.token_hex(_BYTES))
        self._write()

    @property
    def local_key(self) -> str:
        """For peers alone."""
        return self._keys.own

    def receive(self, beats: Mapping[str, ReceivedHeartbeat]) -> None:
        """Takes in what peers told by the network."""
        reported = {
            name: arrived.beat.pool_key for name, arrived in beats.items() if arrived.beat.pool_key
        }
        peers = {**self._keys.peers, **reported}
        if peers != self._keys.peers:
            self._keys = PoolKeyFile(self._keys.own, peers)
            self._write()

    def seal(self, beat: Heartbeat) -> bytes:
        """The beat as it is written to a pool."""
        fields = beat.to_answer()
        return json.dumps({**fields, MAC: _mac(self._keys.own, fields)}).encode()

    def is_of(self, beat: Heartbeat, mac: str) -> bool:
        """Whether the host has sealed that beat: by the key that it told last."""
        key = self._keys.peers.get(beat.host)
        if key is None:
            return False
        # bytes, for compare_digest refuses a text that is not ASCII, and anybody may write one
        return hmac.compare_digest(
            _mac(key, beat.to_answer()).encode(), mac.encode(errors="replace")
        )

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            store.replace(self._path, store.text(self._keys), durable=False)


def _mac(key: str, fields: Mapping[str, object]) -> str:
    """Of the beat as whoever reads it has it: there a whole number may be one with a point."""
    data = Heartbeat.from_answer(fields, "a beat").to_answer()
    return hmac.new(
        key.encode(), json.dumps(data, sort_keys=True).encode(), hashlib.sha256
    ).hexdigest()
