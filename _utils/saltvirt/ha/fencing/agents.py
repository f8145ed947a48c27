"""ClusterLabs' fence agents: a host is switched off by one, and its status asked after that.

A program of the distribution, told by its standard input, so no password is in the list of
processes. Its "off" counts only when its status, asked after it, is off.
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

# how long one call of a fence agent may take
AGENT_TIMEOUT_S = 60
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"

# what fence agents end with (ClusterLabs, FenceAgentAPI)
_ON, _OFF = 0, 2
_MAX_SECRET = 4096
_SHOWN = 300
# one that is killed, and hangs in the kernel
_END_S = 5


@dataclass(frozen=True)
class FenceOutcome:
    """How it ended. state: off, on, or timed out, which is all that is no answer. words: what the
    agent said."""

    state: str
    message: str = ""


@dataclass(frozen=True)
class _AgentRun:
    code: int | None
    message: str


def off(fence: FenceSetting, timeout_s: float = AGENT_TIMEOUT_S) -> FenceOutcome:
    """Switches the host off. Raises OperationFailed where the agent cannot be run at all.

    No agent ends an "off" as it ends the status of one that is off: a shell or an interpreter that
    does not understand the program does, whatever it is asked.
    """
    agent_run = _run(fence, "off", timeout_s)
    if agent_run.code == _OFF:
        return FenceOutcome(TIMED_OUT, f"{agent_run.message}: the agent does not work here")
    outcome = status(fence, timeout_s)
    messages = [agent_run.message] if agent_run.code != 0 else []
    return FenceOutcome(outcome.state, "; ".join(filter(None, [*messages, outcome.message])))


def status(fence: FenceSetting, timeout_s: float = AGENT_TIMEOUT_S) -> FenceOutcome:
    """What the agent sees. Changes nothing. Raises as ``off`` does."""
    agent_run = _run(fence, "status", timeout_s)
    states = {_ON: ON, _OFF: OFF}
    if agent_run.code in states:
        return FenceOutcome(states[agent_run.code])
    return FenceOutcome(TIMED_OUT, agent_run.message)


def program(fence: FenceSetting) -> str:
    """The agent's path. Raises OperationFailed where it is not installed."""
    path = shutil.which(fence.agent, path=PATH)
    if path is None:
        raise errors.OperationFailed(f"{fence.agent} is not installed here: install fence-agents")
    return path


def secret(fence: FenceSetting) -> str | None:
    """The password. Raises OperationFailed for a file that others may read, or that is none."""
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
            raise errors.OperationFailed(f"{path} is no file")
        if file_status.st_mode & 0o077:
            raise errors.OperationFailed(f"{path} can be read by others: chmod 600 {path}")
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
        process = subprocess.Popen(
            [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, env={"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/"}, cwd="/",
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
    """It ends at once, with what it began. It was not waited for: its number is its own."""
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
    """The first of a host's fences that sees it off; and what each said. run: what switches a host
    off by one."""
    reports, outcome = [], FenceOutcome(TIMED_OUT, f"{host} has no fence")
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
    """The outcome of the first of the hosts that sees it off, with what those before it said; else
    of the last. One that cannot be asked is passed over. ask: has a host run the fence."""
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
