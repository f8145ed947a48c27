"""Serve one client's requests to a guest's agent: run a command, receive a file or send a file."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from saltvirt import errors
from saltvirt.console.guestagent.agent_request import Command, GetFile, PutFile
from saltvirt.console.host import guest_exec
from saltvirt.console.host.agent import Agent
from saltvirt.console.host.guest_files import Incoming, Outgoing
from saltvirt.console.protocol import Stream

_SENDER = "the master"


def serve(line: socket.socket, agent: Agent) -> None:
    """Serve requests until the client disconnects or sends an unknown message."""
    stream = Stream(line)
    with line, contextlib.suppress(errors.VirtError):
        while True:
            head, data = stream.receive()
            try:
                _handle_request(stream, agent, head, data)
            except errors.VirtError as exc:
                stream.refuse(exc)


def _handle_request(stream: Stream, agent: Agent, head: dict[str, Any], data: bytes) -> None:
    arguments, operation = head.get("what"), head.get("do")
    if operation == "exec":
        outcome, out, err = guest_exec.run(agent, Command.from_answer(arguments, _SENDER), data)
        stream.send({"answer": outcome.to_answer()}, out + err)
    elif operation == "put":
        _receive_file(stream, agent, PutFile.from_answer(arguments, _SENDER))
    elif operation == "get":
        _send_file(stream, agent, GetFile.from_answer(arguments, _SENDER))
    else:
        raise errors.InvalidInput(
            "this hypervisor has an older version of Salt Virt than the master"
        )


def _receive_file(stream: Stream, agent: Agent, request: PutFile) -> None:
    """Write chunks to a file in the guest until the client sends the end."""
    with Incoming(agent, request) as file:
        stream.send({"answer": {}})
        while True:
            head, data = stream.receive()
            if head.get("do") == "end":
                break
            file.write(data)
            stream.send({"answer": {}})
        file.end()
    stream.send({"answer": {}})


def _send_file(stream: Stream, agent: Agent, request: GetFile) -> None:
    """Send one chunk of a file for each request; an empty chunk is the end."""
    with Outgoing(agent, request.path) as file:
        stream.send({"answer": {}})
        while True:
            stream.receive()
            data = file.read()
            stream.send({"answer": {}}, data)
            if not data:
                return
