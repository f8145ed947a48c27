"""Definitions of guests beside their disks: for a person, or a master, that has lost all others.

Nothing reads them here. A process of its own for each pool, which may hang as its storage does.

    python3 -m saltvirt.haagent definitions FOLDER HOST

It reads lines of JSON, ``name`` and ``xml`` (null: it goes), and answers each with a line: what
failed, or nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, BinaryIO

from saltvirt import errors, plain
from saltvirt.haagent import definitions, pools, store
from saltvirt.haagent.definitions import Definition
from saltvirt.haagent.outside import Outside, answer

FOLDER = "definitions"
# what another host has written over is written again within this time
AGAIN_S, _RETRY_S = 600, 30


class Shelf:
    """One pool. argv: what runs its process. clock: of this boot."""

    def __init__(self, folder: str, argv: Sequence[str], clock: Callable[[], float]) -> None:
        self.folder, self._clock = folder, clock
        self._kept: dict[str, tuple[str, float]] = {}
        self._next: dict[str, str | None] = {}
        self._news, self._guard = threading.Event(), threading.Lock()
        self._outside = Outside(argv)
        threading.Thread(target=self._run, name=f"definitions {folder}", daemon=True).start()

    def keep(
        self,
        own: Mapping[str, Definition],
        guests: Collection[str],
        is_defined: Callable[[str], bool],
    ) -> None:
        """own: those of the guests that are this host's. guests: all of high availability. One that
        is none any more goes when libvirt has it no longer; of others this host forgets that it
        has kept them."""
        now_s = self._clock()
        with self._guard:
            for name, found in own.items():
                digest, at_s = self._kept.get(name, ("", 0.0))
                if digest != found.digest or now_s - at_s >= AGAIN_S:
                    self._kept[name] = (found.digest, now_s)
                    self._next[name] = found.xml
            for name in set(self._kept) - set(own):
                if name in guests:
                    del self._kept[name]
                    self._next.pop(name, None)
                elif not is_defined(name):
                    del self._kept[name]
                    self._next[name] = None
            if self._next:
                self._news.set()

    def end(self) -> None:
        """Ends its process, if that can be ended."""
        self._outside.ends = True
        self._news.set()
        self._outside.end()

    def _run(self) -> None:
        while not self._outside.ends:
            self._news.wait()
            try:
                self._session()
            except (OSError, ValueError, errors.VirtError) as exc:
                self._outside.say(f"definitions in {self.folder}: {plain.line(exc)}")
                threading.Event().wait(_RETRY_S)

    def _session(self) -> None:
        with self._outside.begun() as ask:
            while not self._outside.ends:
                with self._guard:
                    if not self._next:
                        self._news.clear()
                        return
                    name, xml = next(iter(self._next.items()))
                self._took(ask(json.dumps({"name": name, "xml": xml}).encode()))
                with self._guard:
                    if name in self._next and self._next[name] == xml:
                        del self._next[name]

    def _took(self, told: Any) -> None:
        if trouble := told.get("trouble"):
            raise errors.OperationFailed(str(trouble))
        self._outside.say(f"definitions are kept in {self.folder}, too")


def serve(folder: str, host: str, lines: BinaryIO, answers: BinaryIO) -> None:
    """The process of a pool, until nothing is left to do."""

    def take(line: bytes) -> dict[str, Any]:
        asked = json.loads(line)
        put(folder, host, asked["name"], asked["xml"])
        return {}

    answer(folder, lines, answers, take)


def put(folder: str, host: str, name: str, xml: str | None) -> None:
    """A definition into the pool, whole or not at all; None: it goes. What is there already is left
    as it is. Raises OperationFailed where others could read it, OSError."""
    with pools.prepared(folder) as beats, pools.own(beats, FOLDER, 0o077) as home:
        _put(home, host, definitions.file_of(name), xml)


def _put(home: int, host: str, file: str, xml: str | None) -> None:
    if xml is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file, dir_fd=home)
        return
    data = xml.encode()
    with contextlib.suppress(OSError, ValueError):
        if pools.text(home, file) == data:
            return
    # of two hosts that write at once each has a file of its own until it is whole
    own = f".{host}"
    store.replace(own, data, folder=home)
    os.rename(own, file, src_dir_fd=home, dst_dir_fd=home)
    store.settle(home)
