"""Keys that authenticate heartbeats on a shared pool.

Root on the storage, or on another client of it, can write files there. Therefore each agent has a
key, sends it to its peers over TLS only, and signs with it what it writes to pools. All keys are in
a file in memory, in case the agent restarts while the network is down.
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
from saltvirt.system import atomic_file

MAC = "mac"
_BYTES = 32


@dataclass(frozen=True)
class PoolKeyFile(Message):
    """The file. local_key: of this host; peers: the keys that peers have sent."""

    local_key: str
    peers: dict[str, str] = field(default_factory=dict)


class PoolKeys:
    """path: of the file. If it cannot be read, a new key is created, and peers send theirs
    again."""

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
        """The key of this host, to send to peers only."""
        return self._keys.local_key

    def receive(self, beats: Mapping[str, ReceivedHeartbeat]) -> None:
        """Store the keys in heartbeats that arrived over the network."""
        reported = {
            name: arrived.beat.pool_key for name, arrived in beats.items() if arrived.beat.pool_key
        }
        peers = {**self._keys.peers, **reported}
        if peers != self._keys.peers:
            self._keys = PoolKeyFile(self._keys.local_key, peers)
            self._write()

    def seal(self, beat: Heartbeat) -> bytes:
        """Return a heartbeat, signed, for a pool."""
        fields = beat.to_answer()
        return json.dumps({**fields, MAC: _mac(self._keys.local_key, fields)}).encode()

    def is_of(self, beat: Heartbeat, mac: str) -> bool:
        """Whether the host has signed that heartbeat with its last key."""
        key = self._keys.peers.get(beat.host)
        if key is None:
            return False
        # bytes, because compare_digest refuses strings that are not ASCII, and the file may contain
        # any
        return hmac.compare_digest(
            _mac(key, beat.to_answer()).encode(), mac.encode(errors="replace")
        )

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            atomic_file.write(self._path, store.text(self._keys), durable=False)


def _mac(key: str, fields: Mapping[str, object]) -> str:
    """Sign the heartbeat in the form in which the reader has it: an integer may be a float
    there."""
    data = Heartbeat.from_answer(fields, "a beat").to_answer()
    return hmac.new(
        key.encode(), json.dumps(data, sort_keys=True).encode(), hashlib.sha256
    ).hexdigest()
