"""Build once: a folder for each recipe, complete or missing."""

import fcntl
import hashlib
import os
import shutil
import time
from contextlib import contextmanager
from pathlib import Path

from tests.lab import paths
from tests.lab.sh import run


def key(*parts):
    """A short hash of what goes into a build: texts, and files by their content."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else str(part).encode()
        digest.update(f"{len(data)}:".encode() + data)
    return digest.hexdigest()[:12]


@contextmanager
def locked(path):
    """Hold an exclusive lock on a file, which is made when absent.

    Its holder may remove the file: who waited for it then waits for its successor.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with open(path, "w", encoding="ascii") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if is_at(handle, path):
                yield
                return


def is_at(handle, path):
    """Is an open file still the one at that path?"""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except FileNotFoundError:
        return False


def built(name, build, say=lambda text: None, home=None):
    """The folder `name` of the cache (or of `home`); ``build(folder)`` fills it when needed.

    Two processes at once build once. What a build leaves behind when it dies is
    removed by the next; every build has a folder of its own, for a killed build's
    programs may write on for a while.
    """
    home = home or paths.cache()
    done = home / name
    if done.exists():
        os.utime(done)
        return done
    with locked(home / f"{name}.lock"):
        if done.exists():
            return done
        for left in home.glob(f"{name}.part-*"):
            discard(left)
        part = home / f"{name}.part-{os.getpid()}"
        part.mkdir()
        say(f"building {name}")
        try:
            build(part)
            os.rename(part, done)
        finally:
            discard(part)
    say(f"built {name}")
    return done


def prune(days=14):
    """Remove what no build or lab has asked for in a while: old recipes."""
    used = Path("/proc/self/mountinfo").read_text()
    for folder in paths.cache().iterdir():
        unused_s = time.time() - folder.stat().st_mtime
        if folder.is_dir() and unused_s > days * 86400 and f"{folder}" not in used:
            discard(folder)
            folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)


def discard(folder):
    """Remove a folder and, first, whatever is mounted below it."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        run(["umount", "-l", point], check=False)
    shutil.rmtree(folder, ignore_errors=True)
