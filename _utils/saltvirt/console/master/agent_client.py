"""Run commands and copy files through a guest's agent from the master. Only the request that opens
the connection is a job."""

from __future__ import annotations

import base64
import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from saltvirt import errors, units
from saltvirt.answers import reach
from saltvirt.console import protocol
from saltvirt.console.guestagent import agent_protocol, agent_request
from saltvirt.console.guestagent.agent_request import Command, CommandResult, GetFile, PutFile
from saltvirt.console.master import guest_connection
from saltvirt.console.protocol import Stream
from saltvirt.fleet import requester
from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result
from saltvirt.operations.core.operation import Checked, Reasons
from saltvirt.operations.core.report import Report
from saltvirt.system import atomic_file

STDIN = "-"


@contextlib.contextmanager
def agent_stream(fleet: Fleet, name: str) -> Iterator[tuple[str, Stream]]:
    """(the guest's host, a stream to its agent). Raises NotFound, Refused, Unsupported, and the
    errors of Fleet.one."""
    connection = guest_connection.request_relay(fleet, name, reach.AGENT)
    with guest_connection.connect(connection) as tls_socket:
        try:
            yield connection.host, Stream(tls_socket)
        except errors.ConnectionFailed as exc:
            raise errors.ConnectionFailed(f"{name} on {connection.host}: {exc.text}") from exc


def read_input(stdin: object) -> bytes:
    """The input of a command. stdin: path of a file on this machine, or ``-`` for standard input.
    Raises InvalidInput."""
    if stdin is None:
        return b""
    max_bytes = agent_protocol.MAX_INPUT_BYTES
    try:
        if stdin == STDIN:
            data = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with atomic_file.open_existing(str(stdin)) as file:
                data = file.read(max_bytes + 1)
    except OSError as exc:
        raise errors.InvalidInput(
            f"stdin={units.short_repr(stdin)} cannot be read: {exc.strerror}"
        ) from exc
    if len(data) > max_bytes:
        raise errors.InvalidInput(
            f"stdin={units.short_repr(stdin)} has more than {max_bytes // 1024} KiB: copy "
            "it with virt.put"
        )
    return data


@dataclass(frozen=True)
class ExecRequest:
    """A command for a guest. is_raw: return its output unchanged, in base64."""

    command: Command
    stdin: bytes = b""
    is_raw: bool = False


def run(fleet: Fleet, name: str, request: ExecRequest) -> dict[str, Any]:
    """Run a command. Raises InvalidInput, and the errors of agent_stream and of the agent."""
    command = request.command
    agent_request.validate(command, request.stdin)
    with agent_stream(fleet, name) as (host, stream):
        response, data = stream.ask(
            "exec", command, request.stdin, command.timeout_s + protocol.TIMEOUT_S
        )
        outcome = CommandResult.from_answer(response, host)
    return answer(name, host, request, outcome, data)


def answer(
    name: str, host: str, request: ExecRequest, outcome: CommandResult, data: bytes
) -> dict[str, Any]:
    """The data that the runner returns for a command."""
    outputs = (data[: outcome.stdout_bytes], data[outcome.stdout_bytes :])
    stdout, stderr = (
        base64.b64encode(output).decode() if request.is_raw else agent_request.printable(output)
        for output in outputs
    )
    is_success, comment = agent_request.describe_result(
        f"{name} on {host}", request.command, outcome
    )
    response = {
        "result": is_success, "comment": comment, "host": host, "pid": outcome.pid,
        "exit_code": outcome.exit_code, "signal": outcome.signal, "stdout": stdout,
        "stderr": stderr,
        "truncated": outcome.is_cut,
    }  # fmt: skip
    return {name: response} if is_success else {name: response, "retcode": 1}


def require_local_user(opts: dict[str, Any]) -> None:
    """Raise Denied for users of salt-api: the function reads or writes files on the master."""
    if requester.requesting_user(opts) is not None:
        raise errors.Denied(
            "this reads or writes files on the master: it is for users of the master only"
        )


@dataclass(frozen=True)
class FileCopy:
    """local: path on this machine, remote: path in the guest."""

    local: str
    remote: str
    overwrite: bool = False


def put(
    fleet: Fleet, name: str, copy: FileCopy, mode: int | None, atomic: bool, report: Report
) -> dict[str, Any]:
    """Copy a file to the guest. Raises InvalidInput, AlreadyExists, and the errors of agent_stream
    and of the agent."""
    with atomic_file.open_existing(copy.local) as file:
        status = os.fstat(file.fileno())
        file_mode = stat.S_IMODE(status.st_mode) & 0o777 if mode is None and atomic else mode
        request = PutFile(copy.remote, file_mode, copy.overwrite, atomic)
        with agent_stream(fleet, name) as (host, stream):
            stream.ask("put", request)
            done_bytes = 0
            while data := file.read(agent_protocol.PIECE_BYTES):
                stream.ask("piece", data=data)
                done_bytes += len(data)
                _progress(report, f"{name}: {copy.remote}", done_bytes, status.st_size)
            stream.ask("end")
    comment = f"{copy.local} is {copy.remote} of {name} on {host}, {units.human_bytes(done_bytes)}"
    changes = {"path": copy.remote}
    return result.done(name, comment, changes, host=host, size_bytes=done_bytes)


def check_put(fleet: Fleet, name: str, copy: FileCopy) -> Checked:
    """Return what :func:`put` would do, or every reason against it. The agent is connected to, and
    asked for nothing."""
    reasons, size_bytes = Reasons(), 0
    with reasons, atomic_file.open_existing(copy.local) as file:
        size_bytes = os.fstat(file.fileno()).st_size
    with reasons, agent_stream(fleet, name) as (host, _):
        pass
    if reasons.texts:
        return reasons.checked(name)
    comment = f"{copy.local}, {units.human_bytes(size_bytes)}, would be copied to {copy.remote} of "
    comment += f"{name} on {host}{', and replace an existing file' if copy.overwrite else ''}"
    return Checked(name, comment, {"path": copy.remote}, {"host": host, "size_bytes": size_bytes})


def get(fleet: Fleet, name: str, copy: FileCopy, max_bytes: int, report: Report) -> dict[str, Any]:
    """Copy a file from the guest. Raises InvalidInput, AlreadyExists, and the errors of
    agent_stream and of the agent."""
    with (
        atomic_file.create(copy.local, copy.overwrite) as write,
        agent_stream(fleet, name) as (host, stream),
    ):
        stream.ask("get", GetFile(copy.remote))

        def on_progress(done_bytes: int) -> None:
            _progress(report, f"{name}: {copy.local}", done_bytes, None)

        done_bytes = agent_request.copy_limited(
            lambda: stream.ask("piece")[1], write, max_bytes, copy.remote, on_progress
        )
    comment = f"{copy.remote} of {name} on {host} is {copy.local}, {units.human_bytes(done_bytes)}"
    return result.done(name, comment, {"path": copy.local}, host=host, size_bytes=done_bytes)


def check_get(fleet: Fleet, name: str, copy: FileCopy) -> Checked:
    """Return what :func:`get` would do, or every reason against it; see :func:`check_put`."""
    reasons = Reasons()
    with reasons:
        atomic_file.require_new(copy.local, copy.overwrite)
    with reasons, agent_stream(fleet, name) as (host, _):
        pass
    if reasons.texts:
        return reasons.checked(name)
    comment = f"{copy.remote} of {name} on {host} would be copied to {copy.local}"
    comment += ", and replace an existing file" if os.path.lexists(copy.local) else ""
    return Checked(name, comment, {"path": copy.local}, {"host": host})


def _progress(report: Report, label: str, done_bytes: int, total_bytes: int | None) -> None:
    if done_bytes > agent_protocol.PIECE_BYTES:
        percent = min(100, 100 * done_bytes / total_bytes) if total_bytes else 0
        report.progress(percent, f"{label}: {units.human_bytes(done_bytes)}")
