"""Run ClusterLabs' fence agents: switch a host off, then read its status.

A fence agent is a program of the distribution that reads its options from standard input, so no
password appears in the process list. Its "off" counts only if the status that it reports afterwards
is off.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from saltvirt import errors, sanitize
from saltvirt.ha.fencing.setting import FenceSetting
from saltvirt.ha.model.view import OFF, ON, TIMED_OUT
from saltvirt.schema import Message
from saltvirt.system import tools

# timeout of one call of a fence agent
AGENT_TIMEOUT_S = 60
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"

# exit codes of fence agents (ClusterLabs, FenceAgentAPI)
_ON, _OFF = 0, 2
_MAX_SECRET = 4096
_SHOWN = 300
# timeout for a killed process that hangs in the kernel
_END_S = 5


@dataclass(frozen=True)
class FenceOutcome(Message):
    """The result of a fence agent. state: off, on, or timed out, which stands for everything that
    is no answer. message: the output of the agent."""

    state: str
    message: str = ""


@dataclass(frozen=True)
class _AgentRun:
    code: int | None
    message: str


def off(fence: FenceSetting, timeout_s: float = AGENT_TIMEOUT_S) -> FenceOutcome:
    """Switch the host off. Raises OperationFailed if the agent cannot be run.

    No fence agent ends "off" with the exit code of the status of a host that is off. A shell or an
    interpreter that cannot run the program does so, for any action.
    """
    agent_run = _run(fence, "off", timeout_s)
    if agent_run.code == _OFF:
        return FenceOutcome(TIMED_OUT, f"{agent_run.message}: the fence agent does not work here")
    outcome = status(fence, timeout_s)
    messages = [agent_run.message] if agent_run.code != 0 else []
    return FenceOutcome(outcome.state, "; ".join(filter(None, [*messages, outcome.message])))


def status(fence: FenceSetting, timeout_s: float = AGENT_TIMEOUT_S) -> FenceOutcome:
    """Return the status that the agent reports, without changing anything. Raises
    OperationFailed."""
    agent_run = _run(fence, "status", timeout_s)
    states = {_ON: ON, _OFF: OFF}
    if agent_run.code in states:
        return FenceOutcome(states[agent_run.code])
    return FenceOutcome(TIMED_OUT, agent_run.message)


def program(fence: FenceSetting) -> str:
    """Return the path of the agent. Raises OperationFailed if it is not installed."""
    path = shutil.which(fence.agent, path=PATH)
    if path is None:
        raise errors.OperationFailed(
            f"{fence.agent} is not installed: install the package fence-agents"
        )
    return path


def secret(fence: FenceSetting) -> str | None:
    """Read the password. Raises OperationFailed if the file is readable by others or contains no
    password."""
    path = fence.password_file
    if path is None:
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as exc:
        raise errors.OperationFailed(f"{path}: {exc.strerror}") from exc
    try:
        file_status = os.fstat(handle)
        if not stat.S_ISREG(file_status.st_mode):
            raise errors.OperationFailed(f"{path} is not a file")
        if file_status.st_mode & 0o077:
            raise errors.OperationFailed(f"{path} is readable by others: run chmod 600 {path}")
        first_line = os.read(handle, _MAX_SECRET).split(b"\n")[0]
    finally:
        os.close(handle)
    password = first_line.decode(errors="replace").strip("\r")
    if not password or not password.isprintable():
        raise errors.OperationFailed(f"{path} has no password in its first line")
    return password


def _run(fence: FenceSetting, action: str, timeout_s: float) -> _AgentRun:
    path, password = program(fence), secret(fence)
    parameters = {**fence.options, "action": action}
    parameters |= {"password": password} if password else {}
    text = "".join(f"{key}={value}\n" for key, value in parameters.items())
    try:
        process = tools.start_session(
            [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/"}, cwd="/",
        )  # fmt: skip
    except OSError as exc:
        raise errors.OperationFailed(f"{path}: {exc.strerror}") from exc
    try:
        output, _ = process.communicate(text.encode(), timeout=timeout_s)
    except BaseException as exc:
        _end(process)
        if not isinstance(exc, subprocess.TimeoutExpired):
            raise
        return _AgentRun(None, f"{fence.agent} {action} took longer than {timeout_s:.0f} s")
    message = output.decode(errors="replace")
    if password:
        message = message.replace(password, "…")
    line = sanitize.one_line(" ".join(message.split())[-_SHOWN:])
    return _AgentRun(process.returncode, f"{fence.agent} {action}: {line or process.returncode}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its children. It was not waited for yet, so its process ID is not
    reused."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_END_S)
    for pipe in filter(None, (process.stdin, process.stdout)):
        with contextlib.suppress(OSError):
            pipe.close()


def try_levels(
    levels: tuple[FenceSetting, ...], host: str, run: Callable[[FenceSetting], FenceOutcome] = off
) -> tuple[FenceOutcome, list[str]]:
    """Run the fences of a host in order until one reports off. Return the last outcome and the
    report of each. run: switches a host off with one fence."""
    reports, outcome = [], FenceOutcome(TIMED_OUT, f"no fence is configured for {host}")
    for level, fence in enumerate(levels, start=1):
        began_s = time.monotonic()
        try:
            outcome = run(fence)
        except errors.VirtError as exc:
            outcome = FenceOutcome(TIMED_OUT, exc.text)
        duration = f"{time.monotonic() - began_s:.0f} s"
        reports.append(f"fence {level} ({fence.agent}): {outcome.state} after {duration}"
                    + (f": {outcome.message}" if outcome.message else ""))  # fmt: skip
        if outcome.state == OFF:
            break
    return outcome, reports


def try_hosts(hosts: Iterable[str], ask: Callable[[str], FenceOutcome]) -> FenceOutcome:
    """Have the hosts run a fence in order until one reports off. Return that outcome, with the
    reports of the hosts before it, or the last one. A host that cannot be asked is skipped. ask:
    has a host run the fence."""
    reports, outcome = [], FenceOutcome(TIMED_OUT)
    for host in hosts:
        try:
            outcome = ask(host)
        except errors.VirtError as exc:
            outcome = FenceOutcome(TIMED_OUT, exc.text)
        reports.append(
            f"from {host}: {outcome.state}" + (f": {outcome.message}" if outcome.message else "")
        )
        if outcome.state == OFF:
            break
    return FenceOutcome(outcome.state, "; ".join(reports))
