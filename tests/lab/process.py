"""Processes by id and start time, so that a reused id is not mistaken for them."""

import contextlib
import ctypes
import os
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

PR_SET_PDEATHSIG = 1
# its input ends with us; who wrote there may take a moment longer to end
KEEPER = 'cat >/dev/null; for try in 1 2 3 4 5; do rm -rf "$0" && break; sleep 1; done'


def stat(pid):
    """What proc(5) has of a process, from its state on; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def started(pid):
    """When a process started, in clock ticks since boot; None when it is gone."""
    found = stat(pid)
    return None if found is None or found[0] in "ZX" else int(found[19])


def remember(pid, path):
    """Write down a process, to be found again by recall(), also by who calls that meanwhile: the
    lab of an owner that is in half a file would be taken down."""
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    part.write_text(f"{pid} {started(pid)}\n")
    os.replace(part, path)


def recall(path):
    """The pid that remember() wrote to a file, or None when that process is gone."""
    try:
        pid, start = path.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if str(started(int(pid))) == start else None


def children(pid):
    """The pids of a process's children."""
    found = []
    for entry in Path("/proc").iterdir():
        its = stat(entry.name) if entry.name.isdigit() else None
        if its and int(its[1]) == pid:
            found.append(int(entry.name))
    return found


def family(pid):
    """(pid, when it started) of a process and of all below it."""
    found = [(pid, started(pid))]
    for child in children(pid):
        found += family(child)
    return found


def outside(leader, inside):
    """The pid here of the process that has the pid `inside` where `leader` is the first."""
    here = os.readlink(f"/proc/{leader}/ns/pid")
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "ns/pid") == here:
                status = (entry / "status").read_text()
                if status.partition("NSpid:")[2].split("\n")[0].split()[-1] == str(inside):
                    return int(entry.name)
    raise ProcessLookupError(f"no process {inside} where {leader} is the first")


def kill(pid):
    """Kill a process that may be gone already."""
    signalled(pid, signal.SIGKILL)


@contextlib.contextmanager
def still(pid):
    """A process and all below it stand still within the block, and go on after it.

    The parent first, so that it has no more children; whoever ended meanwhile is left out.
    """
    signalled(pid, signal.SIGSTOP)
    try:
        for below, _ in family(pid)[1:]:
            signalled(below, signal.SIGSTOP)
        yield
    finally:
        for one, _ in reversed(family(pid)):
            signalled(one, signal.SIGCONT)


def signalled(pid, number):
    """Send a signal to a process that may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def run_bound(argv, **how):
    """Run a program that the kernel kills when we end in whatever way; its exit code."""
    return subprocess.run(argv, check=False, preexec_fn=die_with_parent, **how).returncode


def die_with_parent():
    """Have the kernel kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def folder(prefix, within=None):
    """A new folder that is gone when we end in whatever way. within: not the user's own for
    temporary files."""
    made = tempfile.mkdtemp(prefix=prefix, dir=within)
    argv = ["sh", "-c", KEEPER, made]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True):
        yield made
