"""Heartbeats in folders on file systems that hosts share.

Each pool has a process of its own: storage that hangs stops only that process.

    python3 -m saltvirt.ha.agent pool FOLDER HOST

It reads lines of JSON, a heartbeat each, and answers each with a line: the error, if any, and the
heartbeats of other hosts.
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

from saltvirt import errors, sanitize
from saltvirt.ha.agent.pool_keys import MAC
from saltvirt.ha.agent.worker_process import WorkerProcess, serve_lines
from saltvirt.ha.model.messages import Heartbeat
from saltvirt.system import atomic_file, mounts

FOLDER = ".salt-virt-ha"
_SUFFIX = ".beat"
_MAX_BYTES = 8 * 1024**2
_RETRY_S = 1
_OPEN_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PoolHeartbeat:
    """A pool as the agent uses it. argv: the command line of its process. clock: of this boot.
    is_of: whether the host that a heartbeat names has signed it."""

    def __init__(
        self,
        folder: str,
        argv: Sequence[str],
        members: Collection[str],
        clock: Callable[[], float],
        is_of: Callable[[Heartbeat, str], bool] = lambda _beat, _mac: True,
    ) -> None:
        self.folder, self._members, self._clock, self._is_of = folder, members, clock, is_of
        self.began_s = clock()
        # when the last heartbeat in the pool was queued; when the heartbeats of others were last
        # read
        self.wrote_s: float | None = None
        self.read_s: float | None = None
        self.beats: dict[str, Heartbeat] = {}
        self._next: queue.Queue[tuple[float, bytes] | None] = queue.Queue(1)
        self._worker = WorkerProcess(argv)
        threading.Thread(target=self._run, name=f"pool {folder}", daemon=True).start()

    def write(self, beat: bytes) -> None:
        """Queue the newest heartbeat, in place of one that still waits."""
        self._offer((self._clock(), beat))

    def silent_s(self) -> float:
        """Return the seconds since the last successful write."""
        return self._clock() - (self.began_s if self.wrote_s is None else self.wrote_s)

    def end(self) -> None:
        """End its process, if possible."""
        self._worker.stopping.set()
        self._offer(None)
        self._worker.end()

    def _offer(self, item: tuple[float, bytes] | None) -> None:
        with contextlib.suppress(queue.Empty):
            self._next.get_nowait()
        with contextlib.suppress(queue.Full):
            self._next.put_nowait(item)

    def _run(self) -> None:
        while not self._worker.stopping.is_set():
            try:
                self._session()
            except (OSError, ValueError, errors.VirtError) as exc:
                self._worker.log_once(f"pool {self.folder}: {exc}")
            self._worker.stopping.wait(_RETRY_S)

    def _session(self) -> None:
        with self._worker.session() as ask:
            while (item := self._next.get()) is not None and not self._worker.stopping.is_set():
                at_s, beat = item
                self._take(at_s, ask(beat))

    def _take(self, at_s: float, reply: Any) -> None:
        trouble = reply.get("trouble")
        message = sanitize.one_line(trouble) if trouble else "writing works"
        self._worker.log_once(f"pool {self.folder}: {message}")
        if not trouble:
            self.wrote_s = at_s
        beats = {}
        for name, data in reply.get("beats", {}).items():
            with contextlib.suppress(errors.BadAnswer):
                beat = Heartbeat.from_answer(data, f"{self.folder}: {name}")
                mac = data.get(MAC)
                if name not in self._members or beat.host != name:
                    continue
                if self._is_of(beat, mac if isinstance(mac, str) else ""):
                    beats[name] = beat
        self.beats, self.read_s = beats, at_s


def serve(folder: str, host: str, lines: BinaryIO, answers: BinaryIO) -> None:
    """Run the process of a pool, until the agent ends."""

    def exchange(line: bytes) -> dict[str, Any]:
        with open_folder(folder) as home:
            write(home, host, line)
            return {"beats": read_peers(home, host)}

    serve_lines(folder, lines, answers, exchange)


@contextlib.contextmanager
def open_folder(folder: str) -> Iterator[int]:
    """Open the folder of heartbeats in a pool, and yield its handle. No symbolic link is followed,
    because others may write to the pool. Raises OperationFailed if others could write to the
    folder, or if no other host could see it; OSError."""
    os.stat(folder)
    real = os.path.realpath(folder)
    refuse_own_disk(real)
    with _open_path(real) as pool, private_folder(pool, FOLDER, 0o022) as home:
        yield home


def refuse_own_disk(real: str) -> None:
    """Raise OperationFailed for a path on storage of this host only. real: without symbolic
    links."""
    mount = max(
        (
            candidate for candidate in mounts.read()
            if f"{real}/".startswith(f"{candidate.mount_point.rstrip('/')}/")
        ),
        key=lambda candidate: len(candidate.mount_point), default=None,
    )  # fmt: skip
    if mount is None or mount.mount_point == "/":
        raise errors.OperationFailed(
            "nothing is mounted there, so the folder is on the host's own disk"
        )
    if mount.kind in mounts.LOCAL:
        raise errors.OperationFailed(
            f"{real} is on {mount.kind} at {mount.mount_point}, which no other host can write to: "
            "mount the shared file system, or remove the folder from virt:ha:pools"
        )


@contextlib.contextmanager
def _open_path(real: str) -> Iterator[int]:
    """Open a folder without following symbolic links, and yield its handle."""
    handle = os.open("/", _OPEN_FLAGS)
    try:
        for name in real.split("/"):
            if name:
                child = os.open(name, _OPEN_FLAGS, dir_fd=handle)
                os.close(handle)
                handle = child
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def private_folder(parent: int, name: str, forbidden_mode: int) -> Iterator[int]:
    """Open a folder of root, or create it, and yield its handle. forbidden_mode: permissions that
    others must not have. Raises OperationFailed, OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    access = "write to" if forbidden_mode == 0o022 else "read"
    error = errors.OperationFailed(f"{name} is a link, or others can {access} it")
    try:
        handle = os.open(name, _OPEN_FLAGS, dir_fd=parent)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENOTDIR):
            raise error from exc
        raise
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid() or status.st_mode & forbidden_mode:
            raise error
        yield handle
    finally:
        os.close(handle)


def write(home: int, host: str, beat: bytes) -> None:
    """Write a heartbeat to the storage, atomically. Raises OSError."""
    atomic_file.write(host + _SUFFIX, beat, dir_fd=home)


def read_peers(home: int, host: str) -> dict[str, Any]:
    """Return the heartbeats of other hosts by name, without those that are invalid."""
    beats = {}
    for file in os.listdir(home):
        name = file.removesuffix(_SUFFIX)
        if file.endswith(_SUFFIX) and name != host:
            with contextlib.suppress(OSError, ValueError, RecursionError, errors.BadAnswer):
                # JSON that is nested almost too deeply would be too deep inside the reply, and end
                # its reader
                data = json.loads(read_file(home, file))
                beats[name] = Heartbeat.from_answer(data, file).to_answer()
                if isinstance(data.get(MAC), str):
                    beats[name][MAC] = data[MAC]
    return beats


def read_file(home: int, name: str) -> bytes:
    """Read a file of root. Raises ValueError if it belongs to another user, OSError."""
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=home)
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise ValueError("the file does not belong to the agent")
        return file.read(_MAX_BYTES)


def worker_argv(folder: str, host: str, worker: str = "pool") -> list[str]:
    """Return the command line of a worker process: this program again."""
    program = os.path.abspath(sys.argv[0])
    command = [program] if program.endswith(".pyz") else ["-m", "saltvirt.ha.agent"]
    return [sys.executable, *command, worker, folder, host]
