"""One caller is served by a guest's agent: a command is run, a file comes in or goes out."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from saltvirt import errors
from saltvirt.guestagent.asked import Command, Get, Put
from saltvirt.guesttalk import Line
from saltvirt.reachhost import guest_exec
from saltvirt.reachhost.agent import Agent
from saltvirt.reachhost.guest_files import Incoming, Outgoing

_WHOSE = "the master"


def serve(line: socket.socket, agent: Agent) -> None:
    """Until the caller goes, or says what nobody understands."""
    talk = Line(line)
    with line, contextlib.suppress(errors.VirtError):
        while True:
            head, data = talk.hear()
            try:
                _one(talk, agent, head, data)
            except errors.VirtError as exc:
                talk.refuse(exc)


def _one(talk: Line, agent: Agent, head: dict[str, Any], data: bytes) -> None:
    what, word = head.get("what"), head.get("do")
    if word == "exec":
        ended, out, err = guest_exec.run(agent, Command.from_answer(what, _WHOSE), data)
        talk.say({"answer": ended.to_answer()}, out + err)
    elif word == "put":
        _take(talk, agent, Put.from_answer(what, _WHOSE))
    elif word == "get":
        _give(talk, agent, Get.from_answer(what, _WHOSE))
    else:
        raise errors.InvalidInput("this hypervisor has an older Salt Virt than the master")


def _take(talk: Line, agent: Agent, asked: Put) -> None:
    """Pieces come until one is the end."""
    with Incoming(agent, asked) as file:
        talk.say({"answer": {}})
        while True:
            head, data = talk.hear()
            if head.get("do") == "end":
                break
            file.write(data)
            talk.say({"answer": {}})
        file.end()
    talk.say({"answer": {}})


def _give(talk: Line, agent: Agent, asked: Get) -> None:
    """A piece for each that is asked for; an empty one is the end."""
    with Outgoing(agent, asked.path) as file:
        talk.say({"answer": {}})
        while True:
            talk.hear()
            data = file.read()
            talk.say({"answer": {}}, data)
            if not data:
                return
