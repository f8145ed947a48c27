"""The log of what verbs have changed: who called them, on which guest or host, and the result.

Entries are lines of JSON in a file of this master. A file that is full replaces the previous one,
so that the log has a limited size and survives a restart of the master.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import logging
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from saltvirt import errors, sanitize
from saltvirt.schema import Message, optional
from saltvirt.system import atomic_file, file_lock

# the maximum size of each of the two files
MAX_BYTES = 4 << 20
MAX_COMMENT_CHARS = 300
_NAME = "activity"
_LOCK_TIMEOUT_S = 5
CREATED, REMOVED = "created", "removed"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogEntry(Message):
    """time: when the verb ended, in UTC. seconds: how long it took. user: who called it. new: the
    second name of the guest, of a verb that gives it one. public_comment: the comment for users
    with limited rights, if it is another. state: the new state of the guest or the host, of a
    decision that a feature has taken. existence: CREATED or REMOVED, of a guest of a verb that does
    not always create or remove the guest."""

    time: str
    seconds: float
    user: str
    verb: str
    guest: str | None
    host: str | None
    result: bool
    comment: str
    new: str | None = optional(None)
    public_comment: str | None = optional(None)
    state: str | None = optional(None)
    existence: str | None = optional(None)

    def is_about(self, pattern: str) -> bool:
        """Return whether a guest, or a host that has no guest in the entry, has this name or
        matches the shell pattern."""
        subjects = filter(None, (self.guest or self.host, self.new))
        return any(
            subject == pattern or fnmatch.fnmatchcase(subject, pattern) for subject in subjects
        )


def _folder(opts: file_lock.Opts) -> Path:
    return Path(opts["cachedir"]) / "virt" / "log"


def append(opts: file_lock.Opts, entries: list[LogEntry]) -> None:
    """Append entries. A failure is only logged: the verb has been carried out."""
    try:
        append_to(_folder(opts), _NAME, entries, MAX_BYTES)
    except (OSError, errors.VirtError) as exc:
        log.warning("the log of verbs was not written: %s", exc)


def append_to(folder: Path, name: str, entries: list[LogEntry], max_bytes: int) -> None:
    """Append entries to a file, which replaces the previous one if it is full. Raises OSError,
    VirtError."""
    lines = [json.dumps(entry.to_answer()) for entry in entries]
    # what a process that died has begun to write is a line of its own
    data = "".join(f"\n{line}\n" for line in lines).encode()
    previous, current = folder / f"{name}.1", folder / name
    with file_lock.exclusive(str(folder / ".lock"), _LOCK_TIMEOUT_S):
        with contextlib.suppress(FileNotFoundError):
            if current.stat().st_size + len(data) > max_bytes:
                atomic_file.rename(current, previous, durable=False)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(current, flags, 0o600)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)


def read(opts: file_lock.Opts, limit: int, pattern: str | None = None) -> list[LogEntry]:
    """Return the newest entries, the oldest of them first. pattern: of the guest or the host."""
    entries = (
        entry
        for path in (_folder(opts) / f"{_NAME}.1", _folder(opts) / _NAME)
        for entry in parse(path)
        if pattern is None or entry.is_about(pattern)
    )
    return [*deque(entries, maxlen=limit)]


def parse(path: Path) -> Iterator[LogEntry]:
    """Yield the entries of a file; lines that are damaged are skipped."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError, errors.BadAnswer):
            if line:
                yield LogEntry.from_answer(json.loads(line), str(path))


def shorten(comment: object) -> str:
    """Return a comment as the log has it: one line of limited length."""
    text = sanitize.one_line(str(comment), None)
    return text if len(text) <= MAX_COMMENT_CHARS else f"{text[:MAX_COMMENT_CHARS]} …"
