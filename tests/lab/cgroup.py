"""A control group for each machine if no systemd provides one. Otherwise the systemds of all
machines would keep their services in one tree: one removes an empty group that another is about to
use, and its service fails with 219/CGROUP."""

import contextlib
import os
import time
from pathlib import Path

# joins each folder before `--`, then becomes what is after it
JOIN = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit; shift; done; shift; exec "$@"'


def trees(mounts=None, own=None):
    """Where a systemd keeps its services: our own groups of the unified hierarchy, and of the
    one named systemd. mounts, own: the texts of /proc/self/mountinfo and /proc/self/cgroup."""
    mounts = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
    own = Path("/proc/self/cgroup").read_text() if own is None else own
    ours = dict(line.split(":", 2)[1:] for line in own.splitlines())
    found = []
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point, (kind, _, options) = before.split()[4], after.split(" ", 2)
        if kind == "cgroup2":
            found.append(Path(point + ours.get("", "/")))
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            found.append(Path(point + ours.get("name=systemd", "/")))
    return found


def make(name):
    """The folders of a new group of that name; none where we may make none."""
    found = []
    for tree in trees():
        with contextlib.suppress(OSError):
            (tree / name).mkdir(exist_ok=True)
            found.append(tree / name)
    return found


def join(folders, argv):
    """The argument list that runs argv in these groups."""
    return ["sh", "-c", JOIN, "join", *map(str, folders), "--", *argv]


def remove(name, timeout_s=5):
    """Removes the groups of that name, once their last processes have gone."""
    end = time.monotonic() + timeout_s
    for tree in trees():
        while (tree / name).exists() and not _removed(tree / name) and time.monotonic() < end:
            time.sleep(0.05)


def _removed(folder):
    for below, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(below)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True
