"""Start the relay program that connects one client to one guest."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import IO

from saltvirt import errors
from saltvirt.answers import reach
from saltvirt.console.host import agent, relay
from saltvirt.console.host.relay import RelayRequest
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup, stats
from saltvirt.system import paths, private_folder, tools, zipapp

RUN = f"{paths.RUN}/reach"
_START_TIMEOUT_S = 60


def probe(conn: libvirt.virConnect, name: str, kind: str, number: int = 0) -> tuple[str, str]:
    """(UUID, type of the display or serial port) of a guest. Raises NotFound, and OperationFailed
    if the guest is off or lacks the device."""
    dom = lookup.lookup(conn, name)
    tree = stats.tree(dom)
    if not dom.isActive():
        raise errors.OperationFailed(f"{name} is off: start it first")
    if kind == reach.AGENT:
        agent.require(dom, name)
        return dom.UUIDString(), reach.AGENT
    if kind == reach.DISPLAY:
        types = [graphics.get("type") or "" for graphics in tree.iterfind("devices/graphics")]
        if number >= len(types):
            raise errors.OperationFailed(f"{name} has no display{f' {number}' if types else ''}")
        return dom.UUIDString(), types[number]
    serial = next(tree.iterfind("devices/console"), None)
    if serial is None:
        serial = next(tree.iterfind("devices/serial"), None)
    if serial is None or serial.get("type") != "pty":
        raise errors.OperationFailed(f"{name} has no serial console that libvirt can open")
    return dom.UUIDString(), "pty"


def start_relay(library: str, request: RelayRequest) -> int:
    """Start the relay program and return the port on which it waits. library: the folder of the
    package saltvirt. Raises OperationFailed if it does not start."""
    path = zipapp.unpacked_folder(library, relay.MODULE, private_folder.ensure(RUN))
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, path, request.uuid], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=log, env=tools.environment(), cwd="/", start_new_session=True,
        )  # fmt: skip
        tools.send_json(process, request.to_answer())
        return _port(process, log)


def _port(process: subprocess.Popen[bytes], log: IO[bytes]) -> int:
    line = _read_line(tools.pipe(process.stdout))
    with contextlib.suppress(ValueError):
        response = json.loads(line)
        if "port" in response:
            return int(response["port"])
        process.wait()
        raise errors.OperationFailed(str(response.get("error", "no error was reported")))
    process.kill()
    process.wait()
    log.seek(0)
    raise errors.OperationFailed(
        f"the connection could not be prepared: {tools.last_output(log.read())}"
    )


def _read_line(stdout: IO[bytes]) -> bytes:
    """The first line of the program's output; empty if the program dies or exceeds the timeout."""
    line, deadline = b"", time.monotonic() + _START_TIMEOUT_S
    while not line.endswith(b"\n"):
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0 or not select.select([stdout], [], [], remaining_s)[0]:
            return b""
        chunk = os.read(stdout.fileno(), 4096)
        if not chunk:
            return b""
        line += chunk
    return line
