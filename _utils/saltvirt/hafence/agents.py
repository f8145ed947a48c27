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

from saltvirt import errors, plain
from saltvirt.ha.view import OFF, ON, TIMED_OUT
from saltvirt.hafence.setting import FenceSetting

# how long one call of a fence agent may take
CALL_S = 60
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"

# what fence agents end with (ClusterLabs, FenceAgentAPI)
_ON, _OFF = 0, 2
_LONGEST_SECRET = 4096
_SHOWN = 300
# one that is killed, and hangs in the kernel
_END_S = 5


@dataclass(frozen=True)
class Outcome:
    """How it ended. state: off, on, or timed out, which is all that is no answer. words: what the
    agent said."""

    state: str
    words: str = ""


@dataclass(frozen=True)
class _Call:
    code: int | None
    words: str


def off(fence: FenceSetting, patience_s: float = CALL_S) -> Outcome:
    """Switches the host off. Raises OperationFailed where the agent cannot be run at all.

    No agent ends an "off" as it ends the status of one that is off: a shell or an interpreter that
    does not understand the program does, whatever it is asked.
    """
    done = _run(fence, "off", patience_s)
    if done.code == _OFF:
        return Outcome(TIMED_OUT, f"{done.words}: the agent does not work here")
    seen = status(fence, patience_s)
    words = [done.words] if done.code != 0 else []
    return Outcome(seen.state, "; ".join(filter(None, [*words, seen.words])))


def status(fence: FenceSetting, patience_s: float = CALL_S) -> Outcome:
    """What the agent sees. Changes nothing. Raises as ``off`` does."""
    found = _run(fence, "status", patience_s)
    states = {_ON: ON, _OFF: OFF}
    if found.code in states:
        return Outcome(states[found.code])
    return Outcome(TIMED_OUT, found.words)


def program(fence: FenceSetting) -> str:
    """The agent's path. Raises OperationFailed where it is not installed."""
    path = shutil.which(fence.agent, path=PATH)
    if path is None:
        raise errors.OperationFailed(f"{fence.agent} is not installed here: install fence-agents")
    return path


def secret(fence: FenceSetting) -> str | None:
    """The password. Raises OperationFailed for a file that others may read, or that is none."""
    place = fence.password_file
    if place is None:
        return None
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as exc:
        raise errors.OperationFailed(f"{place}: {exc.strerror}") from exc
    try:
        seen = os.fstat(handle)
        if not stat.S_ISREG(seen.st_mode):
            raise errors.OperationFailed(f"{place} is no file")
        if seen.st_mode & 0o077:
            raise errors.OperationFailed(f"{place} can be read by others: chmod 600 {place}")
        first = os.read(handle, _LONGEST_SECRET).split(b"\n")[0]
    finally:
        os.close(handle)
    found = first.decode(errors="replace").strip("\r")
    if not found or not found.isprintable():
        raise errors.OperationFailed(f"{place} has no password in its first line")
    return found


def _run(fence: FenceSetting, action: str, patience_s: float) -> _Call:
    path, password = program(fence), secret(fence)
    told = {**fence.options, "action": action}
    told |= {"password": password} if password else {}
    text = "".join(f"{key}={value}\n" for key, value in told.items())
    try:
        process = subprocess.Popen(
            [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, env={"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/"}, cwd="/",
        )  # fmt: skip
    except OSError as exc:
        raise errors.OperationFailed(f"{path}: {exc.strerror}") from exc
    try:
        said, _ = process.communicate(text.encode(), timeout=patience_s)
    except BaseException as exc:
        _end(process)
        if not isinstance(exc, subprocess.TimeoutExpired):
            raise
        return _Call(None, f"{fence.agent} {action} took longer than {patience_s:.0f} s")
    words = said.decode(errors="replace")
    if password:
        words = words.replace(password, "…")
    line = plain.line(" ".join(words.split())[-_SHOWN:])
    return _Call(process.returncode, f"{fence.agent} {action}: {line or process.returncode}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """It ends at once, with what it began. It was not waited for: its number is its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_END_S)
    for pipe in filter(None, (process.stdin, process.stdout)):
        with contextlib.suppress(OSError):
            pipe.close()


def in_turn(
    levels: tuple[FenceSetting, ...], host: str, run: Callable[[FenceSetting], Outcome] = off
) -> tuple[Outcome, list[str]]:
    """The first of a host's fences that sees it off; and what each said. run: what switches a host
    off by one."""
    said, last = [], Outcome(TIMED_OUT, f"{host} has no fence")
    for place, fence in enumerate(levels, start=1):
        began = time.monotonic()
        try:
            last = run(fence)
        except errors.VirtError as exc:
            last = Outcome(TIMED_OUT, exc.text)
        took = f"{time.monotonic() - began:.0f} s"
        said.append(f"fence {place} ({fence.agent}): {last.state} after {took}"
                    + (f": {last.words}" if last.words else ""))  # fmt: skip
        if last.state == OFF:
            break
    return last, said


def by_first(hosts: Iterable[str], ask: Callable[[str], Outcome]) -> Outcome:
    """The outcome of the first of the hosts that sees it off, with what those before it said; else
    of the last. One that cannot be asked is passed over. ask: has a host run the fence."""
    said, last = [], Outcome(TIMED_OUT)
    for host in hosts:
        try:
            last = ask(host)
        except errors.VirtError as exc:
            last = Outcome(TIMED_OUT, exc.text)
        said.append(f"from {host}: {last.state}" + (f": {last.words}" if last.words else ""))
        if last.state == OFF:
            break
    return Outcome(last.state, "; ".join(said))
