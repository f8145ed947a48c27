"""Which events that hosts have reported the log shows beside what verbs have changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from saltvirt.answers import host_events
from saltvirt.operations.journal import activity_log, event_log, location_cache, times
from saltvirt.operations.journal.activity_log import LogEntry
from saltvirt.system import file_lock

# what libvirt reports within so many seconds of a verb for the guest is its effect
_AROUND_S = 2
# a host shows at least so many events of a listing that has too many
_LEAST_PER_HOST = 10


def of_guests(
    opts: file_lock.Opts,
    pattern: str | None,
    changes: list[LogEntry],
    max_entries: int,
    needs_location: bool,
) -> list[LogEntry]:
    """Return the reported events about a guest or a host. changes: the entries of verbs and
    features. Effects of these are left out, and what a host reports about a guest that is, as far
    as this master knows, on another one and never was there. needs_location: leave out guests that
    this master knows on no host, or on several, too."""
    reported = event_log.read(opts, pattern)
    if not reported:
        return []
    locations = location_cache.reported_hosts(opts)
    evidence: set[tuple[str, str]] | None = None
    events = []
    for entry in reported:
        hosts = locations.get(entry.guest or "", set())
        is_there = hosts == {entry.host} if needs_location else not hosts or entry.host in hosts
        if entry.guest is not None and not is_there:
            if evidence is None:
                evidence = _evidence([*activity_log.read(opts, max_entries), *changes])
            if (entry.guest, entry.host or "") not in evidence:
                continue
        events.append(entry)
    return _without_effects(events, changes)


def _evidence(changes: Iterable[LogEntry]) -> set[tuple[str, str]]:
    """Return (guest, host) of each verb that was carried out for a guest there."""
    return {
        (guest, entry.host)
        for entry in changes
        for guest in (entry.guest, entry.new)
        if guest and entry.host
    }


def _without_effects(events: list[LogEntry], changes: Iterable[LogEntry]) -> list[LogEntry]:
    periods: dict[str, list[tuple[float, float]]] = {}
    for entry in changes:
        if entry.state is not None:
            continue
        ended_s = _seconds(entry.time)
        period = (ended_s - entry.seconds - _AROUND_S, ended_s + _AROUND_S)
        for guest in filter(None, (entry.guest, entry.new)):
            periods.setdefault(guest, []).append(period)
    return [entry for entry in events if not _is_effect(entry, periods)]


def _is_effect(entry: LogEntry, periods: Mapping[str, list[tuple[float, float]]]) -> bool:
    if not entry.result or entry.state not in host_events.ROUTINE:
        return False
    time_s = _seconds(entry.time)
    return any(first <= time_s <= last for first, last in periods.get(entry.guest or "", ()))


def _seconds(recorded: str) -> float:
    try:
        return times.seconds(recorded)
    except ValueError:
        return 0


def newest(events: list[LogEntry], limit: int) -> list[LogEntry]:
    """Return the newest events, of each host no more than its share."""
    by_host: dict[str | None, list[LogEntry]] = {}
    for entry in events:
        by_host.setdefault(entry.host, []).append(entry)
    share = max(limit // max(len(by_host), 1), _LEAST_PER_HOST)
    chosen = [entry for entries in by_host.values() for entry in entries[-share:]]
    return sorted(chosen, key=lambda entry: entry.time)[-limit:]
