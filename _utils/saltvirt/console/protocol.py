"""The protocol between master and hypervisor for a guest's agent, over the TLS connection of one
client: each message is a JSON head and data. The client waits for each answer.

Commands, their input and the contents of files therefore appear in no job, event or log.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

from saltvirt import errors
from saltvirt.schema import Message
from saltvirt.system import tls_listener

_LENGTHS = struct.Struct(">II")
_MAX_HEAD_BYTES = 1024**2
_MAX_DATA_BYTES = 4 * 1024**2
# timeout between two messages
TIMEOUT_S = 120
# classes of errors that are preserved in the answer
_KINDS = {
    error_class.__name__: error_class
    for error_class in (
        errors.AlreadyExists, errors.BadAnswer, errors.ConnectionFailed, errors.InvalidInput,
        errors.NotFound, errors.OperationFailed, errors.Unsupported,
    )
}  # fmt: skip


class Stream:
    """One end of the connection. line: a connected socket."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def send(self, head: dict[str, Any], data: bytes = b"") -> None:
        """Send a message. Raises ConnectionFailed."""
        encoded_head = json.dumps(head).encode()
        try:
            self._line.settimeout(TIMEOUT_S)
            self._line.sendall(_LENGTHS.pack(len(encoded_head), len(data)) + encoded_head + data)
        except OSError as exc:
            raise errors.ConnectionFailed(f"the connection ended: {exc}") from exc

    def receive(self, timeout_s: float = TIMEOUT_S) -> tuple[dict[str, Any], bytes]:
        """Receive (head, data). Raises ConnectionFailed, also after a timeout, and BadAnswer."""
        deadline = time.monotonic() + timeout_s
        head, data = _LENGTHS.unpack(self._read_exactly(_LENGTHS.size, deadline))
        if head > _MAX_HEAD_BYTES or data > _MAX_DATA_BYTES:
            raise errors.BadAnswer(f"the message has {head + data} bytes")
        try:
            message = json.loads(self._read_exactly(head, deadline))
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise errors.BadAnswer("the message is invalid")
        return message, self._read_exactly(data, deadline)

    def ask(
        self,
        operation: str,
        request: Message | None = None,
        data: bytes = b"",
        timeout_s: float = TIMEOUT_S,
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and return the answer. Raises the error that the other side returns, and
        the errors of receive."""
        self.send({"do": operation, "what": request.to_answer() if request else {}}, data)
        head, payload = self.receive(timeout_s)
        if "error" in head:
            kind = _KINDS.get(str(head.get("kind")), errors.OperationFailed)
            raise kind(str(head["error"]))
        answer = head.get("answer")
        return answer if isinstance(answer, dict) else {}, payload

    def refuse(self, exc: errors.VirtError) -> None:
        """Answer with an error."""
        self.send({"error": exc.text, "kind": type(exc).__name__})

    def _read_exactly(self, length: int, deadline: float) -> bytes:
        try:
            return tls_listener.receive_exactly(self._line, length, deadline)
        except OSError as exc:
            raise errors.ConnectionFailed(f"the connection ended: {exc}") from exc
