"""Frames: four bytes of length, then JSON ``{"kind": …, "body": {…}}``.

If the HELLO of the receiver says that it accepts changes, heartbeats after the first on a
connection are ``{"kind": …, "body": {…}, "changes": true}``: the body has only the keys whose
values differ from the previous heartbeat on this connection. No digests are compared, and nothing
carries over from one connection to the next.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from saltvirt import errors, sanitize

# an agent's heartbeat, to agents and masters; a master's message, to agents
BEAT, CALL = "beat", "call"
# in both directions: the definition of a managed guest, by content
DEFINITION = "definition"
# between agents: the request to migrate a guest there with this epoch, and the answer
INCOMING, INCOMING_ANSWER = "incoming", "incoming-answer"
# an agent's actions, and an operator's request through a master
JOURNAL, COMMAND = "journal", "command"
# a master's request that a host fences another one, and the result
FENCE, FENCED = "fence", "fenced"
# a keepalive of either side
HELLO = "hello"
# key in the body of HELLO: this side accepts changes
CHANGES = "changes"
# kinds whose body names the sender, which must be the name in the certificate
SPEAKER = {BEAT: "host", CALL: "master"}
# the kinds that each may send; others are ignored
FROM_MEMBERS = frozenset({BEAT, DEFINITION, INCOMING, INCOMING_ANSWER, JOURNAL, FENCED})
FROM_MASTERS = frozenset({CALL, DEFINITION, COMMAND, FENCE})

MAX_BYTES = 8 * 1024**2
HEAD = struct.Struct(">I")


class BadFrame(errors.VirtError):
    """The data is not a frame, or claims another sender."""


@dataclass(frozen=True)
class Frame:
    """An encoded frame. slot: of the frames that wait for one reader only the newest of a slot is
    kept; empty: all of them. body: of a kind that can be sent as changes."""

    slot: str
    data: bytes
    body: dict[str, Any] | None = None

    def encode_since(self, before: Frame | None) -> bytes:
        """Encode the frame for a reader that has the previous frame of the slot."""
        old, new = before.body if before else None, self.body
        if old is None or new is None or old.keys() != new.keys():
            return self.data
        speaker = SPEAKER[self.slot]
        body = {key: value for key, value in new.items() if key == speaker or old[key] != value}
        return _encode({"kind": self.slot, "body": body, CHANGES: True})


def frame(kind: str, body: dict[str, Any]) -> Frame:
    """Encode a message as a Frame. Raises BadFrame if it is too large."""
    data = _encode({"kind": kind, "body": body})
    if len(data) - HEAD.size > MAX_BYTES:
        raise BadFrame(f"cannot send a {kind} of {len(data)} bytes: the maximum is {MAX_BYTES}")
    slot = kind if kind in (*SPEAKER, HELLO) else ""
    if kind == DEFINITION:
        slot = f"{kind} {body.get('name')}"
    return Frame(slot, data, body if kind == BEAT else None)


def _encode(message: dict[str, Any]) -> bytes:
    data = _ENCODER.encode(message).encode()
    return HEAD.pack(len(data)) + data


def length(head: bytes) -> int:
    """Return the length of the JSON that follows. Raises BadFrame."""
    (size,) = HEAD.unpack(head)
    if not 2 <= size <= MAX_BYTES:
        raise BadFrame(f"invalid frame of {size} bytes")
    return int(size)


def parse(
    data: bytes, speaker: str, before: dict[str, Any] | None = None
) -> tuple[str, dict[str, Any]]:
    """Return (kind, body) of the JSON that the speaker sent. before: the body of its previous
    heartbeat on this connection. Raises BadFrame."""
    try:
        message = _DECODER.decode(data.decode())
    except (ValueError, RecursionError) as exc:
        raise BadFrame(f"invalid JSON: {sanitize.one_line(exc, 2000)[:200]}") from exc
    kind, body = (
        (message.get("kind"), message.get("body")) if isinstance(message, dict) else (None, None)
    )
    if not isinstance(kind, str) or not isinstance(body, dict):
        raise BadFrame("a frame has no kind or no body")
    claimed = body.get(SPEAKER[kind]) if kind in SPEAKER else speaker
    if claimed != speaker:
        raise BadFrame(f"a {kind} claims to be from {str(claimed)[:200]}")
    if message.get(CHANGES) is not True:
        return kind, body
    if kind != BEAT or before is None or not body.keys() <= before.keys():
        raise BadFrame(f"changes of a {kind} that was never sent in full")
    return kind, {**before, **body}


def _reject_constant(word: str) -> None:
    raise ValueError(f"invalid number {word}")


# created once: there are hundreds of frames per second
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_reject_constant)
