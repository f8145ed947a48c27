"""A frame: four bytes of length, then JSON ``{"kind": …, "body": {…}}``."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from saltvirt import errors, plain

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
# of these the body says who speaks, and that must be the certificate's name
SPEAKER = {BEAT: "host", CALL: "master"}
# what each may say; anything else is passed over
OF_MEMBERS = frozenset({BEAT, DEFINITION, INCOMING, INCOMING_ANSWER, JOURNAL, FENCED})
OF_MASTERS = frozenset({CALL, DEFINITION, COMMAND, FENCE})

MOST_BYTES = 8 * 1024**2
HEAD = struct.Struct(">I")


class BadFrame(errors.VirtError):
    """What came is no frame, or speaks for another."""


@dataclass(frozen=True)
class Frame:
    """A frame as bytes. slot: of frames that wait for one reader only the newest of a slot is kept;
    empty: all are."""

    slot: str
    data: bytes


def frame(kind: str, body: dict[str, Any]) -> Frame:
    """The Frame of a word. Raises BadFrame for one that is too large."""
    data = json.dumps({"kind": kind, "body": body}, separators=(",", ":")).encode()
    if len(data) > MOST_BYTES:
        raise BadFrame(f"a {kind} of {len(data)} bytes is larger than {MOST_BYTES}")
    slot = kind if kind in (*SPEAKER, HELLO) else ""
    if kind == DEFINITION:
        slot = f"{kind} {body.get('name')}"
    return Frame(slot, HEAD.pack(len(data)) + data)


def length(head: bytes) -> int:
    """How long the JSON is that follows. Raises BadFrame."""
    (found,) = HEAD.unpack(head)
    if not 2 <= found <= MOST_BYTES:
        raise BadFrame(f"a frame of {found} bytes")
    return int(found)


def parse(data: bytes, speaker: str) -> tuple[str, dict[str, Any]]:
    """(kind, body) of the JSON that speaker sent. Raises BadFrame."""
    try:
        found = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as exc:
        raise BadFrame(f"no JSON: {plain.line(exc, 2000)[:200]}") from exc
    kind, body = (found.get("kind"), found.get("body")) if isinstance(found, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(body, dict):
        raise BadFrame("a frame without a kind and a body")
    claimed = body.get(SPEAKER[kind]) if kind in SPEAKER else speaker
    if claimed != speaker:
        raise BadFrame(f"a {kind} in the name of {str(claimed)[:200]}")
    return kind, body


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")
