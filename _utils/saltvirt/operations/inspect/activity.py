"""Show what verbs and features have changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saltvirt import errors, units
from saltvirt.operations.cluster import hooks
from saltvirt.operations.inspect import reported_events
from saltvirt.operations.inspect.log_filter import LogFilter
from saltvirt.operations.journal import activity_log, event_log
from saltvirt.operations.journal.activity_log import LogEntry
from saltvirt.system import file_lock

MAX_ENTRIES = 10_000
_ALL = LogFilter()
# verbs that always leave a name to nobody, and those that always give it to a new guest
_REMOVING, _MAKING = ("purge", "rename"), ("init",)
# verbs whose subject is no guest, although a guest can have its name
_OF_NO_GUEST = frozenset({
    "deployed", "repair", "rebalance", "volume_delete", "ha_rule", "ha_setup", "ha_arm",
    "ha_disarm", "rotate_ca", "backup_prune", "backup_verify",
})  # fmt: skip


def listing(
    opts: file_lock.Opts,
    name: str | None,
    limit: object,
    current_guest: bool,
    chosen: LogFilter = _ALL,
) -> dict[str, Any]:
    """Return the answer of the runner: the newest entries of verbs and features, with the events
    of libvirt since the first of them, the newest last.
    name: of a guest or a host, or a pattern. current_guest: for a user with limited rights: only
    what happened to the guest that has the name now, without what comments say of other guests.
    chosen: which entries to show. Raises InvalidInput."""
    count = _count(limit)
    decided = (entry for entry in hooks.log_entries(opts) if name is None or entry.is_about(name))
    reads_all = current_guest or not chosen.is_empty
    recorded = activity_log.read(opts, MAX_ENTRIES if reads_all else count, name)
    changes = sorted([*recorded, *decided], key=_time)[-MAX_ENTRIES:]
    events = reported_events.of_guests(opts, name, changes, MAX_ENTRIES, current_guest)
    entries = [*changes, *events]
    if current_guest:
        entries = [_public(entry) for entry in _of_current_guest(sorted(entries, key=_time), name)]
    entries = _newest([entry for entry in entries if chosen.accepts(entry)], count)
    entries = [replace(entry, public_comment=None) for entry in entries]
    title = _title(entries, name, chosen)
    notice = "" if current_guest else event_log.notice(opts)
    return {
        "log": {
            "title": f"{title}; {notice}" if notice else title,
            "notice": notice,
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
        if entry.guest is None or (entry.verb in _OF_NO_GUEST and entry.existence is None):
            continue
        is_new = entry.guest == name and (
            entry.existence == activity_log.CREATED or entry.verb in _MAKING
        )
        if entry.result and (is_new or entry.new == name):
            current = []
        # the source of a copy, or of a rename that failed, may be another user's guest
        is_renamed = entry.result and entry.new == name and entry.verb == "rename"
        if entry.guest == name or is_renamed:
            current.append(entry)
        is_gone = entry.existence == activity_log.REMOVED or entry.verb in _REMOVING
        if entry.result and entry.guest == name and is_gone:
            current = []
    return current


def _public(entry: LogEntry) -> LogEntry:
    return replace(entry, comment=entry.public_comment or entry.comment)


def _time(entry: LogEntry) -> str:
    return entry.time


def _newest(entries: list[LogEntry], count: int) -> list[LogEntry]:
    """Return the newest entries: at most so many changes, and so many events since the first of
    these. A host that reports many events displaces no change."""
    changes = [entry for entry in entries if entry.verb != event_log.EVENT][-count:]
    events = [entry for entry in entries if entry.verb == event_log.EVENT]
    if len(changes) == count:
        events = [entry for entry in events if entry.time >= changes[0].time]
    return sorted([*changes, *reported_events.newest(events, count)], key=_time)


def _title(entries: list[LogEntry], name: str | None, chosen: LogFilter) -> str:
    about = f" of {name}" if name else ""
    number = sum(1 for entry in entries if entry.verb == event_log.EVENT)
    counts = {"change": len(entries) - number, "event": number}
    parts = [units.pluralize(count, noun) for noun, count in counts.items() if count]
    if parts:
        return f"the last {' and '.join(parts)}{about}"
    if not chosen.is_empty:
        return f"this master has recorded no such change{about}"
    return f"this master has recorded no change{about}"


def _row(entry: LogEntry) -> list[Any]:
    guest = f"{entry.guest} → {entry.new}" if entry.new else entry.guest
    result = entry.state or ("done" if entry.result else "failed")
    time = entry.time.replace("T", " ").rstrip("Z")
    return [time, entry.user, entry.verb, guest, entry.host, result, entry.comment]
