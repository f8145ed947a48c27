"""Questions about files whose server may be gone: every one of them has an end.

Who asks a dead server waits in the kernel, where nothing ends him. So what is not on this
machine's own storage is asked by a process beside us, which is left behind when it does not
answer. What is on our own, and all of it where nothing else is mounted, we ask ourselves.
"""

import base64
import contextlib
import errno
import json
import os
import select
import subprocess
import sys
import threading
import time
from stat import S_ISREG
from types import SimpleNamespace

from saltvirt.host.storage import looks, mounts

# how long a server may take for one answer, and for the list of a large folder
PATIENCE_S, LIST_S = 5, 30
# one that was silent is not asked again for so long
SILENT_S = 60
# how long what is mounted is remembered
_TABLE_S = 1
_LINKS = 40
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
# file systems of the kernel itself
_KERNELS = {
    *("proc", "sysfs", "devpts", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "bpf"),
    *("pstore", "mqueue", "hugetlbfs", "configfs", "fusectl", "binfmt_misc", "efivarfs"),
    *("selinuxfs", "rpc_pipefs", "nsfs", "rootfs"),
}

_lock = threading.RLock()
_asker, _silent, _notes = [], {}, []
_table = [0.0, ()]


class Silent(OSError):
    """A file system does not answer. place: where it is mounted."""

    def __init__(self, place):
        super().__init__(errno.ETIMEDOUT, f"{place} does not answer")
        self.place = place


@contextlib.contextmanager
def noting():
    """A set that learns which file systems do not answer in the block."""
    silent = set()
    _notes.append(silent)
    try:
        yield silent
    finally:
        _notes[:] = [one for one in _notes if one is not silent]


def _far():
    """Where something is mounted that is not this machine's own."""
    now = time.monotonic()
    if not _table[1] or now - _table[0] > _TABLE_S:
        there = [m for m in mounts.read() if m.kind not in mounts.LOCAL | _KERNELS]
        _table[:] = now, (tuple(sorted({m.place for m in there}, key=len, reverse=True)),)
    return _table[1][0]


def somewhere():
    """Whether anything is mounted that might not answer."""
    return bool(_far())


def _place(path, far):
    """The far one that shows a path without links; None when none does."""
    return next((place for place in far if f"{path}/".startswith(f"{place.rstrip('/')}/")), None)


def _fails(place):
    for silent in _notes:
        silent.add(place)
    raise Silent(place)


def _ask(place, what, *arguments):
    """The answer to a question about a path, by the other process where it lies on ``place``."""
    if place is None:
        return looks.QUESTIONS[what](*arguments)
    with _lock:
        if time.monotonic() < _silent.get(place, 0):
            _fails(place)
        found = _asked([what, *arguments], LIST_S if what == "names" else PATIENCE_S)
        if found is None:
            _silent[place] = time.monotonic() + SILENT_S
            _fails(place)
    if "error" in found:
        raise OSError(found["error"], os.strerror(found["error"]))
    return found["answer"]


def _asked(question, patience_s):
    """What the process beside us answers; None when it does not, and is left behind then."""
    try:
        process = _running()
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
        return json.loads(_line(process.stdout, time.monotonic() + patience_s))
    except (OSError, ValueError):
        _leave()
        return None
    except BaseException:  # what it still answers would be taken for that to the next question
        _leave()
        raise


def _leave():
    """Leaves the process beside us behind: it ends when the kernel lets it, nobody waits for it."""
    owner, process = _asker or (None, None)
    if owner == os.getpid():
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
    _asker.clear()


def _line(pipe, end):
    text = b""
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], max(0, end - time.monotonic()))
        more = os.read(pipe.fileno(), 1 << 20) if ready else b""
        if not more:
            raise TimeoutError
        text += more
    return text


def _running():
    """The process beside us; each of ours has its own."""
    if not _asker or _asker[0] != os.getpid() or _asker[1].poll() is not None:
        argv = [sys.executable or "python3", "-I", "-S", looks.__file__]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
        begun = subprocess.Popen(argv, stderr=subprocess.DEVNULL, cwd="/", **pipes)
        _asker[:] = [os.getpid(), begun]
    return _asker[1]


def _resolve(path, far):
    """The path without links, by questions that have an end. Raises Silent, and OSError where
    links go round."""
    here, rest, links = "/", os.path.join(os.getcwd(), path).split("/")[::-1], 0
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)
            continue
        there = os.path.join(here, name)
        try:
            target = _ask(_place(there, far), "link", there)
        except Silent:
            raise
        except OSError:  # no link, or nothing
            here = there
            continue
        links += 1
        if links > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        here = "/" if target.startswith("/") else here
        rest += target.split("/")[::-1]
    return here


def _question(what, path, *more, follow=True):
    far, path = _far(), os.fspath(path)
    if not far:
        return _ask(None, what, path, *more)
    if "\0" in path:
        raise ValueError("embedded null byte")
    if follow:
        here = _resolve(path, far)
    else:
        folder, name = os.path.split(os.path.abspath(path))
        here = os.path.join(_resolve(folder, far), name)
    return _ask(_place(here, far), what, here, *more)


def real(path):
    """The path without links; as it is where it cannot be followed."""
    try:
        far = _far()
        return _resolve(path, far) if far else os.path.realpath(path)
    except (OSError, ValueError):  # such as a NUL in it
        return path


def stat(path):
    """What os.stat says of a path. Raises OSError; Silent, when it does not answer."""
    return SimpleNamespace(**_question("seen", path, True))


def lexists(path):
    """Whether something is at the path, also a link that leads nowhere; False only where that is
    sure. Raises Silent."""
    try:
        _question("seen", path, follow=False)
    except Silent:
        raise
    except (OSError, ValueError) as exc:
        return not _is_nothing(exc)
    return True


def _is_nothing(exc):
    """Whether an error says that nothing can be at a path: not that it could not be looked at."""
    return isinstance(exc, ValueError) or exc.errno in _NOTHING


def files(folder):
    """The paths of the files in a folder, and of links to files. Raises OSError."""
    return [path for path, kind in _entries(folder) if kind == looks.FILE]


def files_below(folder):
    """The same with all folders in it; none of what is no folder. Raises OSError."""
    try:
        entries = _entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for path, kind in entries:
        if kind == looks.FILE:
            yield path
        elif kind == looks.FOLDER:
            yield from files_below(path)


def _entries(folder):
    """(path, kind) of what is in a folder; a link to a file is a file."""
    found = [(os.path.join(folder, name), kind) for name, kind in _question("names", folder)]
    return [
        (path, looks.FILE if kind == looks.LINK and is_file(path) else kind) for path, kind in found
    ]


def is_file(path):
    """Whether it is a file, or a link to one; False only where that is sure. Raises Silent."""
    try:
        return S_ISREG(stat(path).st_mode)
    except Silent:
        raise
    except (OSError, ValueError) as exc:
        return not _is_nothing(exc)


def names(folder):
    """The names of what is in a folder. Raises OSError."""
    return [name for name, _ in _question("names", folder)]


def room(path):
    """(the size of a unit in bytes, units in all, free units) of the file system that a path is
    on. Raises OSError."""
    return _question("room", path)


def head(path, size):
    """The first bytes of a file or block device; None of anything else. Raises OSError."""
    text = _question("head", path, size)
    return None if text is None else base64.b64decode(text)


def locked(path):
    """Whether a QEMU holds its locks on a file. Raises Silent."""
    return _question("locked", path)
