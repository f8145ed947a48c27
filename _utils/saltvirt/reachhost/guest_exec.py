"""A command is run in a guest by its agent."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence

from saltvirt import errors
from saltvirt.guestagent import words
from saltvirt.guestagent.asked import Command, Ended, checked
from saltvirt.reachhost.agent import MUCH_S, Agent

# A shell of the guest runs the words, without reading them, and lets so much of each output pass;
# the rest is read and thrown away, so that the command ends as it would. An agent keeps all, and
# cannot bring it.
_BOUNDED = """most=$1; shift
some() { head -c "$most"; cat >/dev/null; }
exec 4>&1 5>&2
code=$({
    { { "$@" 2>&1 1>&6 3>&- 4>&- 5>&- 6>&-; echo $? >&3; } | some >&5; } 6>&1 | some >&4
} 3>&1)
exit "$code"
"""
# its process is the group of all that it runs, where the guest has setsid
_GROUP = """if command -v setsid >/dev/null 2>&1; then exec setsid /bin/sh -c "$0" sh "$@"; fi
exec /bin/sh -c "$0" sh "$@"
"""
_SHELL = "/bin/sh"
_SCRIPT_S = 60
# between two looks whether it has ended
_FIRST_S, _LAST_S = 0.02, 1.0


def run(agent: Agent, command: Command, stdin: bytes = b"") -> tuple[Ended, bytes, bytes]:
    """(what became of it, what it wrote to stdout, and to stderr). Raises InvalidInput, and as
    Agent.ask does."""
    checked(command, stdin)
    most = words.MOST_OUTPUT_BYTES
    bounded = (_SHELL, "-c", _GROUP, _BOUNDED, str(most + 1), *command.argv)
    try:
        pid = _begun(agent, bounded, command.env, stdin)
    except errors.NotFound:  # Windows, or a guest with nothing in it
        pid = _begun(agent, command.argv, command.env, stdin)
    found = _awaited(agent, pid, command.timeout_s)
    out, err = found.stdout[:most], found.stderr[:most]
    is_cut = found.is_cut or len(out) + len(err) < len(found.stdout) + len(found.stderr)
    return Ended(pid, found.has_ended, found.exit_code, found.signal, len(out), is_cut), out, err


def _awaited(agent: Agent, pid: int, timeout_s: float) -> words.Status:
    """What has become of a process, at its end or after so long."""
    until, pause = time.monotonic() + timeout_s, _FIRST_S
    while not (found := _status(agent, pid)).has_ended:
        if time.monotonic() >= until:
            return found
        time.sleep(min(pause, max(0.0, until - time.monotonic())))
        pause = min(_LAST_S, pause * 1.5)
    return found


def _begun(agent: Agent, argv: Sequence[str], env: Sequence[str] | None, stdin: bytes = b"") -> int:
    """The process id."""
    told = agent.ask(
        "guest-exec", path=argv[0], arg=list(argv[1:]), env=None if env is None else list(env),
        input_data=base64.b64encode(stdin).decode() if stdin else None, capture_output=True,
    )  # fmt: skip
    return words.pid(told)


def _status(agent: Agent, pid: int) -> words.Status:
    try:
        return words.status(agent.ask("guest-exec-status", MUCH_S, pid=pid))
    except errors.VirtError as exc:
        raise type(exc)(
            f"process {pid} was begun in {agent.name}; how it ended is not known: {exc.text}"
        ) from exc


def script(agent: Agent, text: str, *arguments: str) -> tuple[int | None, str]:
    """(exit code, what it printed) of a script of ours, for any POSIX shell. Raises as run does,
    and OperationFailed where it does not end."""
    pid = _begun(agent, (_SHELL, "-c", text, "sh", *arguments), None)
    found = _awaited(agent, pid, _SCRIPT_S)
    if not found.has_ended:
        raise errors.OperationFailed(
            f"process {pid} in {agent.name} did not end within {_SCRIPT_S} s"
        )
    said = found.stdout if found.exit_code == 0 else found.stderr
    return found.exit_code, said.decode(errors="replace")
