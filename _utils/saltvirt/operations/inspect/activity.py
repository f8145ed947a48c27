"""Show what verbs and features have changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saltvirt import errors, units
from saltvirt.operations.cluster import hooks
from saltvirt.operations.inspect.log_filter import LogFilter
from saltvirt.operations.journal import activity_log
from saltvirt.operations.journal.activity_log import LogEntry
from saltvirt.system import file_lock

MAX_ENTRIES = 10_000
_ALL = LogFilter()
# verbs after which a name belongs to nobody, and which give it to a new guest
_REMOVING, _MAKING = ("purge", "rename"), ("init",)


def listing(
    opts: file_lock.Opts,
    name: str | None,
    limit: object,
    current_guest: bool,
    chosen: LogFilter = _ALL,
) -> dict[str, Any]:
    """Return the answer of the runner: the newest entries of verbs and features, the newest last.
    name: of a guest or a host, or a pattern. current_guest: for a user with limited rights: only
    what happened to the guest that has the name now, without what comments say of other guests.
    chosen: which entries to show. Raises InvalidInput."""
    count = _count(limit)
    decided = (entry for entry in hooks.log_entries(opts) if name is None or entry.is_about(name))
    reads_all = current_guest or not chosen.is_empty
    recorded = activity_log.read(opts, MAX_ENTRIES if reads_all else count, name)
    entries = sorted([*recorded, *decided], key=lambda entry: entry.time)
    if current_guest:
        entries = [_public(entry) for entry in _of_current_guest(entries[-MAX_ENTRIES:], name)]
    entries = [entry for entry in entries if chosen.accepts(entry)][-count:]
    entries = [replace(entry, public_comment=None) for entry in entries]
    return {
        "log": {
            "title": _title(len(entries), name, chosen),
            "table": [
                ["time (UTC)", "user", "verb", "guest", "host", "result", "comment"],
                *map(_row, entries),
            ],
            "columns": {"comment": {"under": True}},
            "entries": [entry.to_answer() for entry in entries],
        }
    }


def _count(limit: object) -> int:
    count = units.parse_count(limit, "limit")
    if count > MAX_ENTRIES:
        raise errors.InvalidInput(f"limit must be at most {MAX_ENTRIES}")
    return count


def _of_current_guest(entries: list[LogEntry], name: str | None) -> list[LogEntry]:
    """Return the entries about the guest that has the name now: not those of a previous guest of
    the name, nor of a host."""
    current: list[LogEntry] = []
    for entry in entries:
        if entry.guest is None:
            continue
        is_new = entry.guest == name and entry.verb in _MAKING
        if entry.result and (is_new or entry.new == name):
            current = []
        # the source of a copy, or of a rename that failed, may be another user's guest
        is_renamed = entry.result and entry.new == name and entry.verb == "rename"
        if entry.guest == name or is_renamed:
            current.append(entry)
        if entry.result and entry.guest == name and entry.verb in _REMOVING:
            current = []
    return current


def _public(entry: LogEntry) -> LogEntry:
    return replace(entry, comment=entry.public_comment or entry.comment)


def _title(number: int, name: str | None, chosen: LogFilter) -> str:
    about = f" of {name}" if name else ""
    if not number:
        if not chosen.is_empty:
            return f"this master has recorded no such change{about}"
        return f"this master has recorded no change{about}"
    return f"the last {units.pluralize(number, 'change')}{about}"


def _row(entry: LogEntry) -> list[Any]:
    guest = f"{entry.guest} → {entry.new}" if entry.new else entry.guest
    result = entry.state or ("done" if entry.result else "failed")
    time = entry.time.replace("T", " ").rstrip("Z")
    return [time, entry.user, entry.verb, guest, entry.host, result, entry.comment]
