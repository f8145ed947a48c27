"""Run commands in a guest through its agent."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence

from saltvirt import errors
from saltvirt.console.guestagent import agent_protocol
from saltvirt.console.guestagent.agent_request import Command, CommandResult, validate
from saltvirt.console.host.agent import LONG_TIMEOUT_S, Agent

# A shell in the guest runs the command and limits each of its outputs; it reads and discards the
# rest, so that the command ends as usual. An agent stores the whole output, but cannot return it.
_BOUNDED = """most=$1; shift
some() { head -c "$most"; cat >/dev/null; }
exec 4>&1 5>&2
code=$({
    { { "$@" 2>&1 1>&6 3>&- 4>&- 5>&- 6>&-; echo $? >&3; } | some >&5; } 6>&1 | some >&4
} 3>&1)
exit "$code"
"""
# where the guest has setsid, the process leads a group with all its children
_GROUP = """if command -v setsid >/dev/null 2>&1; then exec setsid /bin/sh -c "$0" sh "$@"; fi
exec /bin/sh -c "$0" sh "$@"
"""
_SHELL = "/bin/sh"
_SCRIPT_TIMEOUT_S = 60
# pause between two checks for the end of the process
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.02, 1.0


def run(agent: Agent, command: Command, stdin: bytes = b"") -> tuple[CommandResult, bytes, bytes]:
    """Run a command and return (result, stdout, stderr). Raises InvalidInput, and the errors of
    Agent.ask."""
    validate(command, stdin)
    max_bytes = agent_protocol.MAX_OUTPUT_BYTES
    bounded = (_SHELL, "-c", _GROUP, _BOUNDED, str(max_bytes + 1), *command.argv)
    try:
        pid = _start(agent, bounded, command.env, stdin)
    except errors.NotFound:  # Windows, or a guest with nothing in it
        pid = _start(agent, command.argv, command.env, stdin)
    status = _wait_for_end(agent, pid, command.timeout_s)
    out, err = status.stdout[:max_bytes], status.stderr[:max_bytes]
    is_cut = status.is_cut or len(out) + len(err) < len(status.stdout) + len(status.stderr)
    return (
        CommandResult(pid, status.has_ended, status.exit_code, status.signal, len(out), is_cut),
        out,
        err,
    )


def _wait_for_end(agent: Agent, pid: int, timeout_s: float) -> agent_protocol.ProcessStatus:
    """The status of a process when it ends or when the timeout expires."""
    deadline, pause = time.monotonic() + timeout_s, _MIN_PAUSE_S
    while not (status := _status(agent, pid)).has_ended:
        if time.monotonic() >= deadline:
            return status
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(_MAX_PAUSE_S, pause * 1.5)
    return status


def _start(agent: Agent, argv: Sequence[str], env: Sequence[str] | None, stdin: bytes = b"") -> int:
    """Start a process and return its process id."""
    response = agent.ask(
        "guest-exec", path=argv[0], arg=list(argv[1:]), env=None if env is None else list(env),
        input_data=base64.b64encode(stdin).decode() if stdin else None, capture_output=True,
    )  # fmt: skip
    return agent_protocol.pid(response)


def _status(agent: Agent, pid: int) -> agent_protocol.ProcessStatus:
    try:
        return agent_protocol.status(agent.ask("guest-exec-status", LONG_TIMEOUT_S, pid=pid))
    except errors.VirtError as exc:
        raise type(exc)(
            f"process {pid} was started in {agent.name}, but its result is unknown: {exc.text}"
        ) from exc


def script(agent: Agent, text: str, *arguments: str) -> tuple[int | None, str]:
    """Run a script for any POSIX shell and return (exit code, output). Raises the errors of run,
    and OperationFailed if the script exceeds its timeout."""
    pid = _start(agent, (_SHELL, "-c", text, "sh", *arguments), None)
    status = _wait_for_end(agent, pid, _SCRIPT_TIMEOUT_S)
    if not status.has_ended:
        raise errors.OperationFailed(
            f"process {pid} in {agent.name} did not end within {_SCRIPT_TIMEOUT_S} s"
        )
    output = status.stdout if status.exit_code == 0 else status.stderr
    return status.exit_code, output.decode(errors="replace")
