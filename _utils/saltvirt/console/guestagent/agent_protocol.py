"""Encode commands of QEMU's guest agent as JSON, and decode its answers.

Answers are not trusted: an answer whose values do not have the expected type and size is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from saltvirt import errors, sanitize

CHANNEL = "org.qemu.guest_agent.0"
# size of a chunk of a file
PIECE_BYTES = 64 * 1024
# limit of each of a command's outputs: libvirt considers an agent broken until it is restarted if
# an answer exceeds 10 MiB
MAX_OUTPUT_BYTES = 256 * 1024
# limit of a command's input
MAX_INPUT_BYTES = 64 * 1024
# a command of more than 256 KiB does not reach the agent completely (observed with QEMU 7.2), and
# the agent then hangs
_MAX_COMMAND_BYTES = 192 * 1024
_MAX_NUMBER = 2**63
_MAX_SHOWN = 100


@dataclass(frozen=True)
class ProcessStatus:
    """The status of a process in the guest. exit_code, signal: None if there is none or if it is
    unknown. is_cut: the agent did not store the whole output."""

    has_ended: bool
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    is_cut: bool = False


def command(command_name: str, **arguments: Any) -> str:
    """Encode a command. arguments: those that are None are omitted; ``_`` in their names becomes
    ``-``. Raises InvalidInput."""
    members = {
        key.replace("_", "-"): value for key, value in arguments.items() if value is not None
    }
    text = json.dumps(
        {"execute": command_name, "arguments": members} if members else {"execute": command_name}
    )
    if len(text) > _MAX_COMMAND_BYTES:
        raise errors.InvalidInput("the command is too long for a guest agent")
    return text


def return_value(text: object, command_name: str) -> Any:
    """The return value in an answer. Raises BadAnswer."""
    try:
        response = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        response = None
    if not isinstance(response, dict) or "return" not in response:
        raise _wrong(command_name, text)
    return response["return"]


def pid(response: object) -> int:
    """The process id of a started process."""
    return _number(_member(response, "pid", "guest-exec"), "guest-exec", 1)


def status(response: object) -> ProcessStatus:
    """The status of a process."""
    command_name = "guest-exec-status"
    has_exited = _member(response, "exited", command_name)
    if not isinstance(has_exited, bool) or not isinstance(response, dict):
        raise _wrong(command_name, has_exited)
    if not has_exited:
        return ProcessStatus(False)
    code, signal = (
        None if response.get(key) is None else _number(response[key], command_name)
        for key in ("exitcode", "signal")
    )
    out, err = (encoded(response.get(key, ""), command_name) for key in ("out-data", "err-data"))
    is_cut = any(response.get(key) is True for key in ("out-truncated", "err-truncated"))
    return ProcessStatus(True, code, signal, out, err, is_cut)


def handle(response: object) -> int:
    """The handle of an opened file."""
    return _number(response, "guest-file-open")


def piece(response: object, max_bytes: int) -> tuple[bytes, bool]:
    """(data read from a file, whether the end was reached)."""
    command_name = "guest-file-read"
    data, is_end = (
        encoded(_member(response, "buf-b64", command_name), command_name),
        _member(response, "eof", command_name),
    )
    if len(data) > max_bytes or not isinstance(is_end, bool) or not (data or is_end):
        raise errors.BadAnswer(f"the guest agent returned {len(data)} bytes instead of {max_bytes}")
    return data, is_end


def check_written(response: object, length: int) -> None:
    """Raise BadAnswer unless all data was written."""
    count = _number(_member(response, "count", "guest-file-write"), "guest-file-write")
    if count != length:
        raise errors.BadAnswer(f"the guest agent has written {count} of {length} bytes")


def encoded(value: object, command_name: str) -> bytes:
    """Decode a base64 text."""
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise _wrong(command_name, value)


def _member(response: object, key: str, command_name: str) -> object:
    if not isinstance(response, dict) or key not in response:
        raise _wrong(command_name, response)
    return response[key]


def _number(value: object, command_name: str, minimum: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value < _MAX_NUMBER:
        raise _wrong(command_name, value)
    return value


def _wrong(command_name: str, value: object) -> errors.BadAnswer:
    text = value if isinstance(value, str) else repr(value)[: 2 * _MAX_SHOWN]
    return errors.BadAnswer(
        f"the guest agent's answer to {command_name} is invalid: "
        f"{sanitize.one_line(text[:_MAX_SHOWN])}"
    )
