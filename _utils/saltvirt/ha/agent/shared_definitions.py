"""Copies of definitions on the shared pools, for an operator or a master that has lost all others.

HA does not read them. Each pool has a process of its own, which may hang with its storage.

    python3 -m saltvirt.ha.agent definitions FOLDER HOST

It reads lines of JSON, ``name`` and ``xml`` (null: remove it), and answers each with a line: the
error, if any.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, BinaryIO

from saltvirt import errors, sanitize
from saltvirt.ha.agent import definitions, pool_heartbeat
from saltvirt.ha.agent.definitions import GuestDefinition
from saltvirt.ha.agent.worker_process import WorkerProcess, serve_lines
from saltvirt.system import atomic_file

FOLDER = "definitions"
# interval after which a copy is written again, in case another host has overwritten it
REWRITE_S, _RETRY_S = 600, 30


class SharedDefinitions:
    """The copies on one pool. argv: the command line of its process. clock: of this boot."""

    def __init__(self, folder: str, argv: Sequence[str], clock: Callable[[], float]) -> None:
        self.folder, self._clock = folder, clock
        self._written: dict[str, tuple[str, float]] = {}
        self._queue: dict[str, str | None] = {}
        self._wakeup, self._guard = threading.Event(), threading.Lock()
        self._worker = WorkerProcess(argv)
        threading.Thread(target=self._run, name=f"definitions {folder}", daemon=True).start()

    def update(
        self,
        owned: Mapping[str, GuestDefinition],
        guests: Collection[str],
        is_defined: Callable[[str], bool],
    ) -> None:
        """Queue changes. owned: the definitions of this host's guests. guests: all managed guests.
        The copy of a guest that is no longer managed is removed once libvirt no longer has the
        guest. For guests of other hosts this host forgets its copies."""
        now_s = self._clock()
        with self._guard:
            for name, definition in owned.items():
                digest, at_s = self._written.get(name, ("", 0.0))
                if digest != definition.digest or now_s - at_s >= REWRITE_S:
                    self._written[name] = (definition.digest, now_s)
                    self._queue[name] = definition.xml
            for name in set(self._written) - set(owned):
                if name in guests:
                    del self._written[name]
                    self._queue.pop(name, None)
                elif not is_defined(name):
                    del self._written[name]
                    self._queue[name] = None
            if self._queue:
                self._wakeup.set()

    def end(self) -> None:
        """End its process, if possible."""
        self._worker.stopping.set()
        self._wakeup.set()
        self._worker.end()

    def _run(self) -> None:
        while not self._worker.stopping.is_set():
            self._wakeup.wait()
            try:
                self._session()
            except (OSError, ValueError, errors.VirtError) as exc:
                self._worker.log_once(f"definitions in {self.folder}: {sanitize.one_line(exc)}")
                self._worker.stopping.wait(_RETRY_S)

    def _session(self) -> None:
        with self._worker.session() as ask:
            while not self._worker.stopping.is_set():
                with self._guard:
                    if not self._queue:
                        self._wakeup.clear()
                        return
                    name, xml = next(iter(self._queue.items()))
                self._check_reply(ask(json.dumps({"name": name, "xml": xml}).encode()))
                with self._guard:
                    if name in self._queue and self._queue[name] == xml:
                        del self._queue[name]

    def _check_reply(self, reply: Any) -> None:
        if trouble := reply.get("trouble"):
            raise errors.OperationFailed(str(trouble))
        self._worker.log_once(f"definitions are copied to {self.folder}")


def serve(folder: str, host: str, lines: BinaryIO, answers: BinaryIO) -> None:
    """Run the process of a pool, until nothing is left to do."""

    def take(line: bytes) -> dict[str, Any]:
        request = json.loads(line)
        put(folder, host, request["name"], request["xml"])
        return {}

    serve_lines(folder, lines, answers, take)


def put(folder: str, host: str, name: str, xml: str | None) -> None:
    """Write a definition to the pool atomically; None: remove it. An equal file is not written
    again. Raises OperationFailed if others could read it, OSError."""
    with (
        pool_heartbeat.open_folder(folder) as beats,
        pool_heartbeat.private_folder(beats, FOLDER, 0o077) as home,
    ):
        _put(home, host, definitions.file_name(name), xml)


def _put(home: int, host: str, file: str, xml: str | None) -> None:
    if xml is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file, dir_fd=home)
        return
    data = xml.encode()
    with contextlib.suppress(OSError, ValueError):
        if pool_heartbeat.read_file(home, file) == data:
            return
    # two hosts may write at the same time: each uses a temporary file of its own
    atomic_file.write(file, data, part=f".{host}", dir_fd=home)
