"""What a master and a hypervisor say to each other about a guest's agent, through the door that is
open for one caller: a head in JSON, and data. Who asks waits for the answer.

No command, no input and no content of a file is in a job, an event or a log by it.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

from saltvirt import errors
from saltvirt.wire import Fact

_LENGTHS = struct.Struct(">II")
_MOST_HEAD_BYTES = 1024**2
_MOST_DATA_BYTES = 4 * 1024**2
# between two messages that follow each other
PATIENCE_S = 120
# errors keep their class on the way
_KINDS = {
    one.__name__: one
    for one in (
        errors.AlreadyExists, errors.BadAnswer, errors.ConnectionFailed, errors.InvalidInput,
        errors.NotFound, errors.OperationFailed, errors.Unsupported,
    )
}  # fmt: skip


class Line:
    """One end. line: a connected socket."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def say(self, head: dict[str, Any], data: bytes = b"") -> None:
        """Raises ConnectionFailed."""
        told = json.dumps(head).encode()
        try:
            self._line.settimeout(PATIENCE_S)
            self._line.sendall(_LENGTHS.pack(len(told), len(data)) + told + data)
        except OSError as exc:
            raise errors.ConnectionFailed(f"the connection ended: {exc}") from exc

    def hear(self, within_s: float = PATIENCE_S) -> tuple[dict[str, Any], bytes]:
        """(head, data). Raises ConnectionFailed, also where nothing comes in time; BadAnswer."""
        until = time.monotonic() + within_s
        head, data = _LENGTHS.unpack(self._exactly(_LENGTHS.size, until))
        if head > _MOST_HEAD_BYTES or data > _MOST_DATA_BYTES:
            raise errors.BadAnswer(f"a message of {head + data} bytes")
        try:
            found = json.loads(self._exactly(head, until))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise errors.BadAnswer("a message that is none")
        return found, self._exactly(data, until)

    def ask(
        self, word: str, what: Fact | None = None, data: bytes = b"", within_s: float = PATIENCE_S
    ) -> tuple[dict[str, Any], bytes]:
        """What is answered. Raises what the other side raised, and as hear does."""
        self.say({"do": word, "what": what.to_answer() if what else {}}, data)
        head, found = self.hear(within_s)
        if "error" in head:
            kind = _KINDS.get(str(head.get("kind")), errors.OperationFailed)
            raise kind(str(head["error"]))
        told = head.get("answer")
        return told if isinstance(told, dict) else {}, found

    def refuse(self, exc: errors.VirtError) -> None:
        """Answers by an error."""
        self.say({"error": exc.text, "kind": type(exc).__name__})

    def _exactly(self, length: int, until: float) -> bytes:
        found = bytearray()
        try:
            while len(found) < length:
                self._line.settimeout(max(0.1, until - time.monotonic()))
                more = self._line.recv(min(length - len(found), 64 * 1024))
                if not more:
                    raise ConnectionResetError("the other side has gone")
                if time.monotonic() > until:
                    raise TimeoutError("timed out")
                found += more
        except OSError as exc:
            raise errors.ConnectionFailed(f"the connection ended: {exc}") from exc
        return bytes(found)
