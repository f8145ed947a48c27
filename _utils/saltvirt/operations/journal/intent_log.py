"""Record which host was asked to create which guest, from before the request until the result is
known, so that guests of interrupted or killed operations can be found.

The record says where to look; the host is asked what it has.
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
from saltvirt.revert import UndoStack
from saltvirt.schema import Message
from saltvirt.system import file_lock

# records are forgotten after this time
RETENTION_S = 90 * 86400


@dataclass(frozen=True)
class CreateIntent(Message):
    """The record of one creation. function: what began it, such as ``virt.init``. since: in seconds
    since 1970. started: False until a start was requested. operation: the operation's mark in the
    guest's record; None if it has no mark."""

    host: str
    function: str
    since: float
    started: bool = True
    operation: str | None = None


def _folder(opts: file_lock.Opts) -> Path:
    return Path(opts["cachedir"]) / "virt" / "begun"


class PendingCreate:
    """An operation that creates a guest. Use as a context manager around the whole operation.

    opts: the master's options. function: the operation, for messages. undo: the UndoStack of the
    operation; if it could not undo a step, the record stays. operation: the mark in the guest's
    record, or None.
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
        """Record the host that is about to be asked."""
        _write(self._path, CreateIntent(host, self._function, time.time(), False, self._operation))

    def mark_started(self) -> None:
        """Record that the guest is complete and may have been started."""
        _mark_started(self._path)

    def __enter__(self) -> PendingCreate:
        return self

    def __exit__(self, _kind: object, exc: BaseException | None, _traceback: object) -> None:
        is_outcome_known = exc is None or isinstance(exc, errors.VirtError)
        unsure = isinstance(exc, errors.ConnectionFailed) or self._undo.failed
        if is_outcome_known and not unsure:
            self._path.unlink(missing_ok=True)


def mark_started(opts: file_lock.Opts, name: str) -> None:
    """Record the same for a guest whose operation was killed before that."""
    _mark_started(_folder(opts) / name)


def _mark_started(path: Path) -> None:
    _write(path, replace(_read(path), started=True))


def _read(path: Path) -> CreateIntent:
    return CreateIntent.from_answer(json.loads(path.read_text(encoding="utf-8")), str(path))


def _write(path: Path, note: CreateIntent) -> None:
    private.write(str(path), json.dumps(note.to_answer()))


def forget(opts: file_lock.Opts, name: str) -> None:
    """Remove the record: the guest was removed, or its operator knows about it."""
    (_folder(opts) / name).unlink(missing_ok=True)


def load(opts: file_lock.Opts, name: str) -> CreateIntent | None:
    """Return the record of the guest, or None."""
    try:
        return _read(_folder(opts) / name)
    except (FileNotFoundError, ValueError, errors.BadAnswer):
        return None


def load_all(opts: file_lock.Opts) -> dict[str, CreateIntent]:
    """Return name to record, for all guests."""
    intents: dict[str, CreateIntent] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(_folder(opts))):
            entry = None if name.startswith(".") else load(opts, name)
            if entry and time.time() - entry.since < RETENTION_S:
                intents[name] = entry
    return intents


def is_by_another(name: str, intent: CreateIntent, leftovers: Leftovers | None) -> bool:
    """Return whether a guest carries the mark of another operation than the recorded one.

    intent: as returned by ``load``. leftovers: the answer of its host; None if the host did not
    answer.
    """
    return leftovers is not None and leftovers.operations.get(name) != intent.operation
