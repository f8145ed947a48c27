"""The commands of a guest's agent as JSON, and its answers read.

An answer is the guest's word: each value has the type and the size that was asked for, or the
answer is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from saltvirt import errors, plain

CHANNEL = "org.qemu.guest_agent.0"
# one piece of a file
PIECE_BYTES = 64 * 1024
# of what a command prints, of each of its two outputs: libvirt takes an agent for broken whose
# answer has more than 10 MiB, until it is started anew
MOST_OUTPUT_BYTES = 256 * 1024
# of what a command reads
MOST_INPUT_BYTES = 64 * 1024
# a command of more than 256 KiB does not reach the agent whole (seen with QEMU 7.2), which then
# hangs
_MOST_COMMAND_BYTES = 192 * 1024
_MOST = 2**63
_LONGEST = 100


@dataclass(frozen=True)
class Status:
    """Of a process in the guest. exit_code, signal: None where it has none, or is not known.
    is_cut: the agent did not keep all that was printed."""

    has_ended: bool
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    is_cut: bool = False


def command(word: str, **arguments: Any) -> str:
    """A command as the agent takes it; arguments: those that are None are not said, and ``_`` is
    ``-`` in their names. Raises InvalidInput."""
    told = {key.replace("_", "-"): one for key, one in arguments.items() if one is not None}
    text = json.dumps({"execute": word, "arguments": told} if told else {"execute": word})
    if len(text) > _MOST_COMMAND_BYTES:
        raise errors.InvalidInput("it is longer than a guest agent takes at once")
    return text


def returned(text: object, word: str) -> Any:
    """What an answer has in it. Raises BadAnswer."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or "return" not in found:
        raise _wrong(word, text)
    return found["return"]


def pid(told: object) -> int:
    """Of the process that was begun."""
    return _number(_member(told, "pid", "guest-exec"), "guest-exec", 1)


def status(told: object) -> Status:
    """What has become of a process."""
    word = "guest-exec-status"
    ended = _member(told, "exited", word)
    if not isinstance(ended, bool) or not isinstance(told, dict):
        raise _wrong(word, ended)
    if not ended:
        return Status(False)
    code, signal = (
        None if told.get(key) is None else _number(told[key], word)
        for key in ("exitcode", "signal")
    )
    out, err = (encoded(told.get(key, ""), word) for key in ("out-data", "err-data"))
    is_cut = any(told.get(key) is True for key in ("out-truncated", "err-truncated"))
    return Status(True, code, signal, out, err, is_cut)


def handle(told: object) -> int:
    """Of the file that was opened."""
    return _number(told, "guest-file-open")


def piece(told: object, most_bytes: int) -> tuple[bytes, bool]:
    """(what was read of a file, whether that was its end)."""
    word = "guest-file-read"
    data, is_end = encoded(_member(told, "buf-b64", word), word), _member(told, "eof", word)
    if len(data) > most_bytes or not isinstance(is_end, bool) or not (data or is_end):
        raise errors.BadAnswer(
            f"the guest agent reads {len(data)} bytes where {most_bytes} were asked"
        )
    return data, is_end


def written(told: object, length: int) -> None:
    """Raises BadAnswer where not all of a piece was written."""
    count = _number(_member(told, "count", "guest-file-write"), "guest-file-write")
    if count != length:
        raise errors.BadAnswer(f"the guest agent has written {count} of {length} bytes")


def encoded(value: object, word: str) -> bytes:
    """The bytes of a text in base64."""
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise _wrong(word, value)


def _member(told: object, key: str, word: str) -> object:
    if not isinstance(told, dict) or key not in told:
        raise _wrong(word, told)
    return told[key]


def _number(value: object, word: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _MOST:
        raise _wrong(word, value)
    return value


def _wrong(word: str, value: object) -> errors.BadAnswer:
    text = value if isinstance(value, str) else repr(value)[: 2 * _LONGEST]
    return errors.BadAnswer(
        f"the guest agent does not answer {word} as it should: {plain.line(text[:_LONGEST])}"
    )
