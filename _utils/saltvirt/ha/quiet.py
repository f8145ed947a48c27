"""Which hosts and guests a decision has to look at. Most guests run where they are to, at most
times: of those it remembers by what it was sure of that, and looks again when any of it is another
thing. Most hosts are up, and heard, and say what they said before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.ha.facts import RUNNING, WORKING
from saltvirt.ha.registry import PLACED, UP
from saltvirt.ha.view import STARTED, Quiet

if TYPE_CHECKING:
    from saltvirt.ha.facts import Beat
    from saltvirt.ha.registry import GuestRecord, HostRecord, Registry
    from saltvirt.ha.view import GuestWanted, MasterState, View


def grouped(quiet: Quiet, registry: Registry, view: View) -> Quiet:
    """The same, for these guests as they are recorded and wanted."""
    if quiet.records is registry.guests and quiet.wanted is view.guests:
        return quiet
    by_host: dict[str, list[str]] = {}
    loud = []
    for name, wanted in view.guests.items():
        record = registry.guests.get(name)
        if record is not None and _is_at_peace(record, wanted):
            by_host.setdefault(record.host, []).append(name)
        else:
            loud.append(name)
    return Quiet(registry.guests, view.guests, by_host, tuple(loud))


def looked_at(quiet: Quiet, registry: Registry, view: View) -> tuple[Quiet, set[str]]:
    """(what it remembers now, the guests for which something may have to be done)."""
    ranked = {name for rule in view.rules if rule.hosts for name in rule.guests}
    names = {*quiet.loud, *(name for name in {*ranked, *view.wishes} if name in view.guests)}
    seen = {}
    for host, guests in quiet.by_host.items():
        arrived = view.beats.get(host)
        beat = arrived.beat if arrived else None
        if beat is None or not _is_well(registry.host(host), beat, view):
            names.update(guests)
            continue
        boot, there = quiet.seen.get(host, (None, None))
        if boot != beat.boot or there is not beat.guests:
            loud = [name for name in guests if not _runs(registry.guests[name], beat, name)]
            names.update(loud)
            if loud:
                continue
        seen[host] = beat.boot, beat.guests
    return Quiet(quiet.records, quiet.wanted, quiet.by_host, quiet.loud, seen), names


def is_host(name: str, record: HostRecord, state: MasterState, view: View, now_s: float) -> bool:
    """Nothing of the host can change: it is up, heard in the boot that is known, by its last word
    at work, and nobody wants it empty."""
    arrived, pledge = view.beats.get(name), state.kept.pledges.get(name)
    return (
        record.state == UP
        and arrived is not None
        and now_s - arrived.at_s < view.policy.suspect_s
        and arrived.beat.boot == record.boot
        and not (pledge is not None and pledge.freeze)
        and name not in view.maintenance
    )


def _is_at_peace(record: GuestRecord, wanted: GuestWanted) -> bool:
    """It is placed, and nothing of it is under way."""
    return (
        record.state == PLACED
        and wanted.wanted == STARTED
        and not (record.target or record.home or record.better)
        and not (record.restarts or record.relocates or record.failed)
        and record.agent_silent_s == wanted.agent_silent_s
        and len(record.places) == 1
        and record.changed > 0
    )


def _is_well(record: HostRecord, beat: Beat, view: View) -> bool:
    """Nothing is the matter with the host, by its own word."""
    well = record.state == UP and beat.boot == record.boot and beat.phase == WORKING
    silent_s = beat.storage_silent_s
    return well and (silent_s is None or silent_s < view.policy.storage_lost_s)


def _runs(record: GuestRecord, beat: Beat, name: str) -> bool:
    there = beat.guests.get(name)
    return (
        there is not None
        and record.boot == beat.boot
        and there.state == RUNNING
        and there.epoch == record.epoch
        and not (there.trouble or there.resets)
    )
