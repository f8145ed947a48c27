"""The hosts and guests that a decision has to examine. Most guests run where they should, most of
the time: the master remembers the objects from which it concluded that, and examines a guest again
when one of these objects is replaced. Most hosts are up, are heard, and repeat their state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.ha.model.messages import RUNNING, WORKING
from saltvirt.ha.model.registry import PLACED, UP
from saltvirt.ha.model.view import STARTED, IdleGuests

if TYPE_CHECKING:
    from saltvirt.ha.model.messages import Heartbeat
    from saltvirt.ha.model.registry import HaGuestRecord, HostRecord, Registry
    from saltvirt.ha.model.view import GuestConfig, MasterState, View


def grouped(idle: IdleGuests, registry: Registry, view: View) -> IdleGuests:
    """Return idle, regrouped if the records or configurations of guests have changed."""
    if idle.records is registry.guests and idle.configs is view.guests:
        return idle
    by_host: dict[str, list[str]] = {}
    loud = []
    for name, config in view.guests.items():
        record = registry.guests.get(name)
        if record is not None and _is_idle(record, config):
            by_host.setdefault(record.host, []).append(name)
        else:
            loud.append(name)
    return IdleGuests(registry.guests, view.guests, by_host, tuple(loud))


def select(idle: IdleGuests, registry: Registry, view: View) -> tuple[IdleGuests, set[str]]:
    """Return (the idle guests to remember, the names of guests that may need an action)."""
    ranked = {name for rule in view.rules if rule.hosts for name in rule.guests}
    names = {*idle.loud, *(name for name in {*ranked, *view.relocations} if name in view.guests)}
    statuses = {}
    for host, guests in idle.by_host.items():
        arrived = view.beats.get(host)
        beat = arrived.beat if arrived else None
        if beat is None or not _is_well(registry.host(host), beat, view):
            names.update(guests)
            continue
        boot, previous = idle.statuses.get(host, (None, None))
        if boot != beat.boot or previous is not beat.guests:
            loud = [name for name in guests if not _runs(registry.guests[name], beat, name)]
            names.update(loud)
            if loud:
                continue
        statuses[host] = beat.boot, beat.guests
    return IdleGuests(idle.records, idle.configs, idle.by_host, idle.loud, statuses), names


def is_idle_host(
    name: str, record: HostRecord, state: MasterState, view: View, now_s: float
) -> bool:
    """Return whether nothing about the host can change: the host is up, was heard recently in the
    boot that the registry has, has not frozen its guests, and is not to be in maintenance."""
    arrived, host_state = view.beats.get(name), state.saved.host_states.get(name)
    return (
        record.state == UP
        and arrived is not None
        and now_s - arrived.at_s < view.policy.suspect_s
        and arrived.beat.boot == record.boot
        and not (host_state is not None and host_state.freeze)
        and name not in view.maintenance
    )


def _is_idle(record: HaGuestRecord, config: GuestConfig) -> bool:
    """Return whether the guest is placed and no change of it is in progress."""
    return (
        record.state == PLACED
        and config.desired_state == STARTED
        and not (record.target or record.home or record.better)
        and not (record.restarts or record.relocates or record.failed)
        and record.agent_silent_s == config.agent_silent_s
        and len(record.locations) == 1
        and record.changed > 0
    )


def _is_well(record: HostRecord, beat: Heartbeat, view: View) -> bool:
    """Return whether the host's own heartbeat reports no problem."""
    well = record.state == UP and beat.boot == record.boot and beat.phase == WORKING
    silent_s = beat.storage_silent_s
    return well and (silent_s is None or silent_s < view.policy.storage_lost_s)


def _runs(record: HaGuestRecord, beat: Heartbeat, name: str) -> bool:
    status = beat.guests.get(name)
    return (
        status is not None
        and record.boot == beat.boot
        and status.state == RUNNING
        and status.epoch == record.epoch
        and not (status.trouble or status.resets)
    )
