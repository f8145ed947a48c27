"""Which host was told to make which guest: written down before it is told, until it is known what
became of it. So what an operation made that was given up, or killed, is found later.

It says where to look, never what is there: the host is asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from saltvirt import errors
from saltvirt.answers.guests import Leftovers
from saltvirt.fleet import private
from saltvirt.operations.journal import evacuated
from saltvirt.revert import UndoStack
from saltvirt.schema import Message, optional
from saltvirt.system import file_lock

# what nobody asked for so long is forgotten
RETENTION_S = 90 * 86400


@dataclass(frozen=True)
class CreateIntent(Message):
    """What is written down of one. what: the operation, for people. since: in seconds since 1970.
    started: False as long as nobody was told to start it. operation: the mark that the guest's
    record has then, None for one that gets none; empty: written by a version that knew no marks."""

    host: str
    what: str
    since: float
    started: bool = True
    operation: str | None = optional("")


def _folder(opts: file_lock.Opts) -> Path:
    return Path(opts["cachedir"]) / "virt" / "begun"


class PendingCreate:
    """One operation that makes a guest. Use as a context manager around all of it.

    opts: the master's options. what: the operation, for people. undo: the Revert of what it
    makes; what could not be undone stays written down. operation: the mark in the guest's record,
    None for one that gets none.
    """

    def __init__(
        self,
        opts: file_lock.Opts,
        name: str,
        function: str,
        undo: UndoStack,
        operation: str | None = None,
    ) -> None:
        self._opts, self._name, self._path = opts, name, _folder(opts) / name
        self._function, self._undo, self._operation = function, undo, operation

    def record_host(self, host: str) -> None:
        """This host is told to make it, now. It was never moved away from anywhere."""
        evacuated.forget(self._opts, self._name)
        _write(self._path, CreateIntent(host, self._function, time.time(), False, self._operation))

    def mark_started(self) -> None:
        """It is whole and may have been started from now on."""
        _mark_started(self._path)

    def __enter__(self) -> PendingCreate:
        return self

    def __exit__(self, _kind: object, exc: BaseException | None, _traceback: object) -> None:
        is_outcome_known = exc is None or isinstance(exc, errors.VirtError)
        unsure = isinstance(exc, errors.ConnectionFailed) or self._undo.failed
        if is_outcome_known and not unsure:
            self._path.unlink(missing_ok=True)


def mark_started(opts: file_lock.Opts, name: str) -> None:
    """The same for a guest whose operation was killed before that."""
    _mark_started(_folder(opts) / name)


def _mark_started(path: Path) -> None:
    _write(path, replace(_read(path), started=True))


def _read(path: Path) -> CreateIntent:
    return CreateIntent.from_answer(json.loads(path.read_text(encoding="utf-8")), str(path))


def _write(path: Path, note: CreateIntent) -> None:
    private.write(str(path), json.dumps(note.to_answer()))


def forget(opts: file_lock.Opts, name: str) -> None:
    """The guest is gone, or somebody knows of it."""
    (_folder(opts) / name).unlink(missing_ok=True)


def load(opts: file_lock.Opts, name: str) -> CreateIntent | None:
    """What is written down of the guest, or None."""
    try:
        return _read(_folder(opts) / name)
    except (FileNotFoundError, ValueError, errors.BadAnswer):
        return None


def load_all(opts: file_lock.Opts) -> dict[str, CreateIntent]:
    """Name to what :func:`of` tells, of all."""
    intents: dict[str, CreateIntent] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(_folder(opts))):
            entry = None if name.startswith(".") else load(opts, name)
            if entry and time.time() - entry.since < RETENTION_S:
                intents[name] = entry
    return intents


def is_by_another(name: str, intent: CreateIntent, leftovers: Leftovers | None) -> bool:
    """Whether a guest has the mark of another operation than the one that was begun.

    intent: what ``of`` returns. leftovers: what its host says; None when
    it did not answer.
    """
    if leftovers is None or leftovers.operations is None or intent.operation == "":
        return False
    return leftovers.operations.get(name) != intent.operation
