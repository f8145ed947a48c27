"""Show what verbs have changed."""

from __future__ import annotations

from typing import Any

from saltvirt import errors, units
from saltvirt.operations.journal import activity_log
from saltvirt.operations.journal.activity_log import LogEntry
from saltvirt.system import file_lock

MAX_ENTRIES = 10_000
# verbs after which a name belongs to nobody
_REMOVING = ("purge",)


def listing(
    opts: file_lock.Opts, name: str | None, limit: object, current_guest: bool
) -> dict[str, Any]:
    """Return the answer of the runner: the newest entries, the newest last. name: of a guest or a
    host, or a pattern. current_guest: only what happened since a previous guest of that name was
    removed. Raises InvalidInput."""
    entries = activity_log.read(opts, _count(limit), name)
    if current_guest:
        entries = _since_removal(entries)
    return {
        "log": {
            "title": _title(len(entries), name),
            "table": [
                ["time (UTC)", "user", "verb", "guest", "host", "result", "comment"],
                *map(_row, entries),
            ],
            "entries": [entry.to_answer() for entry in entries],
        }
    }


def _count(limit: object) -> int:
    count = units.parse_count(limit, "limit")
    if count > MAX_ENTRIES:
        raise errors.InvalidInput(f"limit must be at most {MAX_ENTRIES}")
    return count


def _since_removal(entries: list[LogEntry]) -> list[LogEntry]:
    removed = [
        index for index, entry in enumerate(entries) if entry.verb in _REMOVING and entry.result
    ]
    return entries[removed[-1] + 1 :] if removed else entries


def _title(number: int, name: str | None) -> str:
    about = f" of {name}" if name else ""
    if not number:
        return f"no verb has changed anything{about} that this master has recorded"
    return f"the last {units.pluralize(number, 'change')}{about}"


def _row(entry: LogEntry) -> list[Any]:
    guest = f"{entry.guest} → {entry.new}" if entry.new else entry.guest
    result = "done" if entry.result else "failed"
    time = entry.time.replace("T", " ").rstrip("Z")
    return [time, entry.user, entry.verb, guest, entry.host, result, entry.comment]
