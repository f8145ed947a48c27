"""Beats beside the disks: written to and read from folders on file systems that hosts share.

A process of its own for each pool: storage that hangs stops that process, and nothing else.

    python3 -m saltvirt.haagent pool FOLDER HOST

It reads lines of JSON, a beat each, and answers each that it took with a line: what failed or
nothing, and the beats of others.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, BinaryIO

from saltvirt import errors, plain
from saltvirt.ha.facts import Beat
from saltvirt.haagent import store
from saltvirt.haagent.outside import Outside, answer
from saltvirt.haagent.pool_keys import MAC
from saltvirt.host.storage import mounts

FOLDER = ".salt-virt-ha"
_ENDING = ".beat"
_MOST_BYTES = 8 * 1024**2
_AGAIN_S = 1
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Pool:
    """One pool as the agent sees it. argv: what runs its process. clock: of this boot. is_of:
    whether a beat with that MAC is of the host that it names."""

    def __init__(
        self,
        folder: str,
        argv: Sequence[str],
        members: Collection[str],
        clock: Callable[[], float],
        is_of: Callable[[Beat, str], bool] = lambda _beat, _mac: True,
    ) -> None:
        self.folder, self._members, self._clock, self._is_of = folder, members, clock, is_of
        self.began_s = clock()
        # when the last beat that it has was handed over; when others' beats were last read
        self.wrote_s: float | None = None
        self.read_s: float | None = None
        self.beats: dict[str, Beat] = {}
        self._next: queue.Queue[tuple[float, bytes] | None] = queue.Queue(1)
        self._outside = Outside(argv)
        threading.Thread(target=self._run, name=f"pool {folder}", daemon=True).start()

    def write(self, beat: bytes) -> None:
        """Hands over the newest beat; one that still waits is forgotten."""
        self._offer((self._clock(), beat))

    def silent_s(self) -> float:
        """For how long nothing could be written."""
        return self._clock() - (self.began_s if self.wrote_s is None else self.wrote_s)

    def end(self) -> None:
        """Ends its process, if that can be ended."""
        self._outside.ends = True
        self._offer(None)
        self._outside.end()

    def _offer(self, found: tuple[float, bytes] | None) -> None:
        with contextlib.suppress(queue.Empty):
            self._next.get_nowait()
        with contextlib.suppress(queue.Full):
            self._next.put_nowait(found)

    def _run(self) -> None:
        while not self._outside.ends:
            try:
                self._session()
            except (OSError, ValueError, errors.VirtError) as exc:
                self._outside.say(f"pool {self.folder}: {exc}")
            threading.Event().wait(_AGAIN_S)

    def _session(self) -> None:
        with self._outside.begun() as ask:
            while (found := self._next.get()) is not None and not self._outside.ends:
                at_s, beat = found
                self._take(at_s, ask(beat))

    def _take(self, at_s: float, told: Any) -> None:
        trouble = told.get("trouble")
        said = plain.line(trouble) if trouble else "is written to"
        self._outside.say(f"pool {self.folder}: {said}")
        if not trouble:
            self.wrote_s = at_s
        found = {}
        for name, data in told.get("beats", {}).items():
            with contextlib.suppress(errors.BadAnswer):
                beat = Beat.from_answer(data, f"{self.folder}: {name}")
                mac = data.get(MAC)
                if name not in self._members or beat.host != name:
                    continue
                if self._is_of(beat, mac if isinstance(mac, str) else ""):
                    found[name] = beat
        self.beats, self.read_s = found, at_s


def serve(folder: str, host: str, lines: BinaryIO, answers: BinaryIO) -> None:
    """The process of a pool, until the agent ends."""

    def exchange(line: bytes) -> dict[str, Any]:
        with prepared(folder) as home:
            write(home, host, line)
            return {"beats": others(home, host)}

    answer(folder, lines, answers, exchange)


@contextlib.contextmanager
def prepared(folder: str) -> Iterator[int]:
    """The handle of the folder of beats in a pool. What is done by it goes through no link, whoever
    may write to the pool. Raises OperationFailed where others could write to the folder of beats,
    or where no other host could see it; OSError."""
    os.stat(folder)
    real = os.path.realpath(folder)
    refuse_own_disk(real)
    with _opened(real) as pool, own(pool, FOLDER, 0o022) as home:
        yield home


def refuse_own_disk(real: str) -> None:
    """Raises OperationFailed for a path on what this host alone has. real: without links."""
    mount = max(
        (one for one in mounts.read() if f"{real}/".startswith(f"{one.place.rstrip('/')}/")),
        key=lambda one: len(one.place), default=None,
    )  # fmt: skip
    if mount is None or mount.place == "/":
        raise errors.OperationFailed("nothing is mounted there: it is on the host's own disk")
    if mount.kind in mounts.LOCAL:
        raise errors.OperationFailed(
            f"{real} is on {mount.kind} at {mount.place}, which no other host can write to: mount "
            "the shared file system, or take the folder out of virt:ha:pools"
        )


@contextlib.contextmanager
def _opened(real: str) -> Iterator[int]:
    """The handle of a folder, by way of no link."""
    handle = os.open("/", _FOLDER)
    try:
        for name in real.split("/"):
            if name:
                below = os.open(name, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = below
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def own(parent: int, name: str, closed: int) -> Iterator[int]:
    """The handle of a folder of ours alone, made where there is none. closed: what others may not
    do there. Raises OperationFailed, OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    what = "write to" if closed == 0o022 else "read"
    wrong = errors.OperationFailed(f"{name} is a link, or others can {what} it")
    try:
        handle = os.open(name, _FOLDER, dir_fd=parent)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENOTDIR):
            raise wrong from exc
        raise
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or found.st_mode & closed:
            raise wrong
        yield handle
    finally:
        os.close(handle)


def write(home: int, host: str, beat: bytes) -> None:
    """A beat on the storage, whole. Raises OSError."""
    store.replace(host + _ENDING, beat, folder=home)


def others(home: int, host: str) -> dict[str, Any]:
    """The beats of other hosts, by name; what cannot be read, or is no beat, is left out."""
    found = {}
    for file in os.listdir(home):
        name = file.removesuffix(_ENDING)
        if file.endswith(_ENDING) and name != host:
            with contextlib.suppress(OSError, ValueError, RecursionError, errors.BadAnswer):
                # one just not too deep here would be so in the answer, and end whoever reads that
                data = json.loads(text(home, file))
                found[name] = Beat.from_answer(data, file).to_answer()
                if isinstance(data.get(MAC), str):
                    found[name][MAC] = data[MAC]
    return found


def text(home: int, name: str) -> bytes:
    """What is in a file of ours. Raises ValueError for one of another's, OSError."""
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=home)
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ValueError("no file of the agents")
        return file.read(_MOST_BYTES)


def argv(folder: str, host: str, part: str = "pool") -> list[str]:
    """What runs a process of a pool: this program again."""
    program = os.path.abspath(sys.argv[0])
    again = [program] if program.endswith(".pyz") else ["-m", "saltvirt.haagent"]
    return [sys.executable, *again, part, folder, host]
