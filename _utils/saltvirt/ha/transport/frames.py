"""A frame: four bytes of length, then JSON ``{"kind": …, "body": {…}}``.

To one that says in its HELLO that it takes changes, a beat after the first on a connection is
``{"kind": …, "body": {…}, "changes": true}``: the body has the keys whose values are others than in
the beat before it on that very connection. Nothing is compared by a digest, and nothing is known
from one connection to the next.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from saltvirt import errors, sanitize

# to agents and masters: what an agent knows; to agents: what a master knows
BEAT, CALL = "beat", "call"
# both ways: the definition of a guest of high availability, by content
DEFINITION = "definition"
# between agents: may a guest come in with this epoch, and the answer
INCOMING, INCOMING_ANSWER = "incoming", "incoming-answer"
# an agent's acts, and a person's word through a master
JOURNAL, COMMAND = "journal", "command"
# a master has a host run a fence of another one, and how that ended
FENCE, FENCED = "fence", "fenced"
# each side says that it is there, when it has nothing else to say
HELLO = "hello"
# of HELLO's body: this side takes changes
CHANGES = "changes"
# of these the body says who speaks, and that must be the certificate's name
SPEAKER = {BEAT: "host", CALL: "master"}
# what each may say; anything else is passed over
FROM_MEMBERS = frozenset({BEAT, DEFINITION, INCOMING, INCOMING_ANSWER, JOURNAL, FENCED})
FROM_MASTERS = frozenset({CALL, DEFINITION, COMMAND, FENCE})

MAX_BYTES = 8 * 1024**2
HEAD = struct.Struct(">I")


class BadFrame(errors.VirtError):
    """What came is no frame, or speaks for another."""


@dataclass(frozen=True)
class Frame:
    """A frame as bytes. slot: of frames that wait for one reader only the newest of a slot is kept;
    empty: all are. body: of one of which changes may be said."""

    slot: str
    data: bytes
    body: dict[str, Any] | None = None

    def encode_since(self, before: Frame | None) -> bytes:
        """As bytes for one that has that other frame of the slot."""
        old, new = before.body if before else None, self.body
        if old is None or new is None or old.keys() != new.keys():
            return self.data
        speaker = SPEAKER[self.slot]
        body = {key: value for key, value in new.items() if key == speaker or old[key] != value}
        return _encode({"kind": self.slot, "body": body, CHANGES: True})


def frame(kind: str, body: dict[str, Any]) -> Frame:
    """The Frame of a word. Raises BadFrame for one that is too large."""
    data = _encode({"kind": kind, "body": body})
    if len(data) - HEAD.size > MAX_BYTES:
        raise BadFrame(f"a {kind} of {len(data)} bytes is larger than {MAX_BYTES}")
    slot = kind if kind in (*SPEAKER, HELLO) else ""
    if kind == DEFINITION:
        slot = f"{kind} {body.get('name')}"
    return Frame(slot, data, body if kind == BEAT else None)


def _encode(message: dict[str, Any]) -> bytes:
    data = _ENCODER.encode(message).encode()
    return HEAD.pack(len(data)) + data


def length(head: bytes) -> int:
    """How long the JSON is that follows. Raises BadFrame."""
    (size,) = HEAD.unpack(head)
    if not 2 <= size <= MAX_BYTES:
        raise BadFrame(f"a frame of {size} bytes")
    return int(size)


def parse(
    data: bytes, speaker: str, before: dict[str, Any] | None = None
) -> tuple[str, dict[str, Any]]:
    """(kind, body) of the JSON that speaker sent. before: the body of his last beat on this
    connection. Raises BadFrame."""
    try:
        message = _DECODER.decode(data.decode())
    except (ValueError, RecursionError) as exc:
        raise BadFrame(f"no JSON: {sanitize.one_line(exc, 2000)[:200]}") from exc
    kind, body = (
        (message.get("kind"), message.get("body")) if isinstance(message, dict) else (None, None)
    )
    if not isinstance(kind, str) or not isinstance(body, dict):
        raise BadFrame("a frame without a kind and a body")
    claimed = body.get(SPEAKER[kind]) if kind in SPEAKER else speaker
    if claimed != speaker:
        raise BadFrame(f"a {kind} in the name of {str(claimed)[:200]}")
    if message.get(CHANGES) is not True:
        return kind, body
    if kind != BEAT or before is None or not body.keys() <= before.keys():
        raise BadFrame(f"changes of a {kind} that was not told")
    return kind, {**before, **body}


def _reject_constant(word: str) -> None:
    raise ValueError(f"{word} is no number")


# made once: there are hundreds of frames a second
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_reject_constant)
