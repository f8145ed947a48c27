"""Questions about files that may never be answered: every one of them has an end.

Who asks a dead server, or a file system or a block device whose disk is gone, waits in the kernel,
where nothing ends him. So they are asked by a process beside us, which is left behind when it does
not answer. What is in memory or on the file system that the system itself runs from we ask
ourselves: without that one nothing runs here.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from stat import S_ISBLK, S_ISREG
from typing import Any, NamedTuple, NoReturn

from saltvirt.host.storage import looks, mounts

# how long a server may take for one answer, and for the list of a large folder
PATIENCE_S, LIST_S = 5, 30
# one that was silent is not asked again for so long
SILENT_S = 60
# how long what is mounted is remembered
_TABLE_S = 1
_LINKS = 40
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
# file systems of the kernel itself, and those in memory
_KERNELS = {
    *("proc", "sysfs", "devpts", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "bpf"),
    *("pstore", "mqueue", "hugetlbfs", "configfs", "fusectl", "binfmt_misc", "efivarfs"),
    *("selinuxfs", "rpc_pipefs", "nsfs", "rootfs", "tmpfs", "ramfs", "devtmpfs"),
}
_DEVICES = "/sys/dev/block"

_locks = [threading.RLock()]
_asker: list[_Asker] = []
# until when a place is not asked again
_silent: dict[str, float] = {}
_notes: list[set[str]] = []
# when what is mounted was read, and where it may not answer
_table: list[tuple[float, tuple[str, ...]]] = []


class _Asker(NamedTuple):
    """The process beside us, and whose it is."""

    pid: int
    process: subprocess.Popen[bytes]
    channel: socket.socket


@dataclass(frozen=True)
class Seen:
    """What os.stat says."""

    st_mode: int
    st_ino: int
    st_dev: int
    st_uid: int
    st_gid: int
    st_size: int
    st_blocks: int
    st_rdev: int
    st_mtime: float
    st_mtime_ns: int
    st_ctime_ns: int


def _forked() -> None:
    """Whoever held the lock is not in this process: without this it would wait for ever."""
    _locks[:] = [threading.RLock()]


os.register_at_fork(after_in_child=_forked)


class Silent(OSError):
    """A file system does not answer. place: where it is mounted."""

    strerror: str

    def __init__(self, place: str) -> None:
        super().__init__(errno.ETIMEDOUT, f"{place} does not answer")
        self.place = place


@contextlib.contextmanager
def noting() -> Iterator[set[str]]:
    """A set that learns which file systems do not answer in the block."""
    silent: set[str] = set()
    _notes.append(silent)
    try:
        yield silent
    finally:
        _notes[:] = [one for one in _notes if one is not silent]


def _far() -> tuple[str, ...]:
    """Where something is mounted that may not answer."""
    now = time.monotonic()
    if not _table or now - _table[0][0] > _TABLE_S:
        there = mounts.read()
        system = [m.number for m in there if m.place == "/" and m.kind in mounts.LOCAL][-1:]
        far = {m.place for m in there if m.kind not in _KERNELS and m.number not in system}
        _table[:] = [(now, tuple(sorted(far, key=len, reverse=True)))]
    return _table[0][1]


def _place(path: str, far: Sequence[str]) -> str | None:
    """The far one that shows a path without links; None when none does."""
    return next((place for place in far if f"{path}/".startswith(f"{place.rstrip('/')}/")), None)


def _fails(place: str) -> NoReturn:
    for silent in _notes:
        silent.add(place)
    raise Silent(place)


def _ask(place: str | None, what: str, *arguments: Any) -> Any:
    """The answer to a question about a path, by the other process where it lies on ``place``."""
    if place is None:
        return looks.QUESTIONS[what](*arguments)
    with _locks[0]:
        if time.monotonic() < _silent.get(place, 0):
            _fails(place)
        found = _asked([what, *arguments], LIST_S if what == "names" else PATIENCE_S)
        if found is None:
            _silent[place] = time.monotonic() + SILENT_S
            _fails(place)
    answer, fds = found
    if "error" in answer:
        raise OSError(answer["error"], os.strerror(answer["error"]))
    if what in looks.WITH_DESCRIPTOR:
        return answer["answer"], fds[0] if fds else None
    return answer["answer"]


def _asked(question: list[Any], patience_s: float) -> tuple[Any, list[int]] | None:
    """(what the process beside us answers, descriptors); None when it does not, and is left behind
    then."""
    try:
        channel = _running()
        channel.sendall(json.dumps(question).encode() + b"\n")
        text, fds = _line(channel, time.monotonic() + patience_s)
        return json.loads(text), fds
    except (OSError, ValueError):
        _leave()
        return None
    except BaseException:  # what it still answers would be taken for that to the next question
        _leave()
        raise


def _leave() -> None:
    """Leaves the process beside us behind: it ends when the kernel lets it, nobody waits for it."""
    if _asker and _asker[0].pid == os.getpid():
        _asker[0].process.kill()
        _asker[0].channel.close()
    _asker.clear()


def _line(channel: socket.socket, end: float) -> tuple[bytes, list[int]]:
    text, fds = b"", list[int]()
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([channel], [], [], max(0, end - time.monotonic()))
        if not ready:
            raise TimeoutError
        more, some, _, _ = socket.recv_fds(channel, 1 << 20, 1)
        if not more:
            raise TimeoutError
        for fd in some:  # recv_fds takes no notice of flags
            os.set_inheritable(fd, False)
        text, fds = text + more, fds + some
    return text, fds


def _running() -> socket.socket:
    """The way to the process beside us; each of ours has its own."""
    if not _asker or _asker[0].pid != os.getpid() or _asker[0].process.poll() is not None:
        ours, theirs = socket.socketpair()
        argv = [sys.executable or "python3", "-I", "-S", looks.__file__]
        nowhere = subprocess.DEVNULL
        with theirs:
            begun = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=nowhere, stderr=nowhere, cwd="/"
            )
        _asker[:] = [_Asker(os.getpid(), begun, ours)]
    return _asker[0].channel


def _resolve(path: str, far: Sequence[str]) -> str:
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
        place, way, there = _place(os.path.join(here, name), far), [name], os.path.join(here, name)
        while place and rest and rest[-1] not in ("", ".", ".."):
            there = os.path.join(there, rest[-1])
            if _place(there, far) != place:
                break
            way.append(rest.pop())
        walked, target = _ask(place, "walk", here, way)
        here = os.path.join(here, *way[:walked])
        if target is None:
            continue
        links += 1
        if links > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        here = "/" if target.startswith("/") else here
        rest += way[walked + 1 :][::-1] + target.split("/")[::-1]
    return here


def _disks(path: str) -> str | None:
    """The disks below a block device, as one name; None of what is none. Only the kernel is asked:
    what lies on one dead disk is asked for once."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    if not S_ISBLK(seen.st_mode):
        return None
    found: set[str] = set()
    todo = [f"{_DEVICES}/{os.major(seen.st_rdev)}:{os.minor(seen.st_rdev)}"]
    while todo:
        folder = os.path.realpath(todo.pop())
        if os.path.exists(f"{folder}/partition"):
            folder = os.path.dirname(folder)
        try:
            parts = os.listdir(f"{folder}/slaves")
        except OSError:
            parts = []
        todo += [f"{folder}/slaves/{part}" for part in parts]
        found |= set() if parts else {f"/dev/{os.path.basename(folder).replace('!', '/')}"}
    return ", ".join(sorted(found))


def _question(
    what: str, path: str | os.PathLike[str], *more: int | bool, follow: bool = True
) -> Any:
    far, path = _far(), os.fspath(path)
    if "\0" in path:
        raise ValueError("embedded null byte")
    if not far:
        here = path
    elif follow:
        here = _resolve(path, far)
    else:
        folder, name = os.path.split(os.path.abspath(path))
        here = os.path.join(_resolve(folder, far), name)
    place = _place(here, far)
    if place is None and what in looks.OPEN:
        place = _disks(here)
    return _ask(place, what, here, *more)


def real(path: str) -> str:
    """The path without links; as it is where it cannot be followed."""
    try:
        far = _far()
        return _resolve(path, far) if far else os.path.realpath(path)
    except (OSError, ValueError):  # such as a NUL in it
        return path


def stat(path: str | os.PathLike[str]) -> Seen:
    """What os.stat says of a path. Raises OSError; Silent, when it does not answer."""
    return Seen(**_question("seen", path, True))


def lexists(path: str) -> bool:
    """Whether something is at the path, also a link that leads nowhere; False only where that is
    sure. Raises Silent."""
    try:
        _question("seen", path, follow=False)
    except Silent:
        raise
    except (OSError, ValueError) as exc:
        return not _is_nothing(exc)
    return True


def _is_nothing(exc: OSError | ValueError) -> bool:
    """Whether an error says that nothing can be at a path: not that it could not be looked at."""
    return isinstance(exc, ValueError) or exc.errno in _NOTHING


def files(folder: str) -> list[str]:
    """The paths of the files in a folder, and of links to files. Raises OSError."""
    return [path for path, kind in _entries(folder) if kind == looks.FILE]


def files_below(folder: str) -> Iterator[str]:
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


def _entries(folder: str) -> list[tuple[str, str]]:
    """(path, kind) of what is in a folder; a link to a file is a file."""
    found = [(os.path.join(folder, name), kind) for name, kind in _question("names", folder)]
    return [
        (path, looks.FILE if kind == looks.LINK and is_file(path) else kind) for path, kind in found
    ]


def is_file(path: str) -> bool:
    """Whether it is a file, or a link to one; False only where that is sure. Raises Silent."""
    try:
        return S_ISREG(stat(path).st_mode)
    except Silent:
        raise
    except (OSError, ValueError) as exc:
        return not _is_nothing(exc)


def names(folder: str, most: int | None = None) -> list[str]:
    """The names of what is in a folder. Raises OSError, E2BIG for more of them than ``most``."""
    return [name for name, _ in _question("names", folder, *([] if most is None else [most]))]


def room(path: str) -> tuple[int, int, int]:
    """(the size of a unit in bytes, units in all, free units) of the file system that a path is
    on. Raises OSError."""
    unit, total, free = _question("room", path)
    return unit, total, free


def head(path: str, size: int) -> bytes | None:
    """The first bytes of a file or block device; None of anything else. Raises OSError."""
    text = _question("head", path, size)
    return None if text is None else base64.b64decode(text)


def locked(path: str) -> bool:
    """Whether a QEMU holds its locks on a file. Raises Silent."""
    return bool(_question("locked", path))


def opened(path: str) -> int | None:
    """A descriptor for reading; None of what is neither a file nor a block device. Raises
    OSError."""
    _, fd = _question("opening", path)
    return None if fd is None else int(fd)


def closed(path: str) -> tuple[bool, int | None]:
    """(whether a QEMU has a file open, a descriptor with which no other QEMU opens it, None of what
    is no file). Raises OSError."""
    taken, fd = _question("closing", path)
    return taken, fd


def stilled(path: str) -> tuple[tuple[bool, str | None], int | None]:
    """((whether a QEMU may write there, the error where that cannot be told), a descriptor with
    which no other QEMU does, None of what holds no data). Raises OSError."""
    (taken, why), fd = _question("stilling", path)
    return (taken, why), fd
