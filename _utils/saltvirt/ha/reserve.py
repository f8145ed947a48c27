"""What would become of the guests if a host died now, and whether room is kept for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from saltvirt.ha.place import Room
from saltvirt.ha.registry import UP, GuestPlace, GuestRecord, HostRecord

if TYPE_CHECKING:
    from saltvirt.ha.registry import Registry
    from saltvirt.ha.view import View


@dataclass(frozen=True)
class Lost:
    """Where the guests of a host would go: guest to host; those that no host takes, with why."""

    host: str
    moved: dict[str, str]
    unplaced: dict[str, str]


def lose(view: View, registry: Registry, host: str, now_s: float) -> Lost:
    """What would become of the guests that may run on the host."""
    gone = [
        name
        for name, record in registry.guests.items()
        if any(place.host == host for place in record.places) and name in view.guests
    ]
    guests = {
        **registry.guests,
        **{name: replace(registry.guests[name], places=(), host="", target="") for name in gone},
    }
    hosts = {**registry.hosts, host: HostRecord("lost")}
    room = Room(view, replace(registry, guests=guests, hosts=hosts), now_s)
    moved, unplaced = {}, {}
    for name in sorted(gone, key=lambda one: (-view.guests[one].priority, one)):
        ranked, why = room.ranked(name)
        if ranked:
            moved[name] = ranked[0]
            room.take(name, ranked[0])
        else:
            unplaced[name] = why
    return Lost(host, moved, unplaced)


def short(view: View, registry: Registry, now_s: float) -> list[Lost]:
    """The hosts whose loss would leave a guest without a place: none, where ``reserve`` is kept."""
    up = [name for name, one in registry.hosts.items() if one.state == UP]
    found = [lose(view, registry, name, now_s) for name in up]
    return [one for one in found if one.unplaced]


def refusal(view: View, registry: Registry, guest: str, now_s: float) -> str:
    """Why a guest that is to be added would break the reserve, or nothing."""
    if not view.policy.reserve:
        return ""
    before = {one.host for one in short(view, registry, now_s)}
    ranked, why = Room(view, registry, now_s).ranked(guest)
    if not ranked:
        return why
    host = view.guests[guest].host or ranked[0]
    there = GuestRecord(host=host, run=True, places=_place(host))
    added = replace(registry, guests={**registry.guests, guest: there})
    worse = [one for one in short(view, added, now_s) if one.host not in before]
    return "; ".join(
        f"if {one.host} died, no host would take {', '.join(one.unplaced)}" for one in worse
    )


def _place(host: str) -> tuple[GuestPlace, ...]:
    return (GuestPlace(host, 0),)
