"""What would become of the guests if hosts died now, and whether room is kept for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

from saltvirt.ha.place import Room
from saltvirt.ha.registry import UP, GuestPlace, GuestRecord, HostRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from saltvirt.ha.registry import Registry
    from saltvirt.ha.view import GuestRule, GuestWanted, View
    from saltvirt.placement.facts import Guest, Host

# of so many sets of hosts each is looked at; of more only the worst
MOST_SETS = 60
# of so few hosts each is filled up by itself when it is counted what fits
FEW_HOSTS = 12


@dataclass(frozen=True)
class Lost:
    """Where the guests of the hosts would go: guest to host; those that no host takes, with why."""

    hosts: tuple[str, ...]
    moved: dict[str, str]
    unplaced: dict[str, str]

    def text(self, names: Collection[str] | None = None) -> str:
        """What is short. names: of those guests; None: of all that have no place."""
        guests = ", ".join(self.unplaced if names is None else names)
        return f"if {' and '.join(self.hosts)} died, no host would take {guests}"


def lose(
    view: View,
    registry: Registry,
    hosts: Collection[str],
    now_s: float,
    waiting: Collection[str] = (),
    now: Room | None = None,
) -> Lost:
    """What would become of the guests that may run on the hosts, when all of these die. waiting:
    guests that have no host now, and need one besides. now: the Room as it is."""
    gone = [
        name
        for name, record in registry.guests.items()
        if name in view.guests
        and (name in waiting or any(place.host in hosts for place in record.places))
    ]
    guests = {
        **registry.guests,
        **{name: replace(registry.guests[name], places=(), host="", target="") for name in gone},
    }
    left = {**registry.hosts, **{host: HostRecord("lost") for host in hosts}}
    room = Room(view, replace(registry, guests=guests, hosts=left), now_s, now)
    moved, unplaced = {}, {}
    for name in sorted(gone, key=lambda one: (-view.guests[one].priority, one)):
        ranked, why = room.ranked(name)
        if ranked:
            moved[name] = ranked[0]
            room.take(name, ranked[0])
        else:
            unplaced[name] = why
    return Lost(tuple(hosts), moved, unplaced)


def worst(view: View, registry: Registry, now_s: float) -> list[tuple[str, ...]]:
    """The sets of so many hosts as ``reserve`` says. Where there are too many, each host with those
    that take the most from the others: the room that is free on them, and what their guests need.
    """
    up = sorted(name for name, one in registry.hosts.items() if one.state == UP)
    count = min(view.policy.reserve, len(up))
    if not count:
        return []
    if comb(len(up), count) <= MOST_SETS:
        return [*combinations(up, count)]
    room = Room(view, registry, now_s)

    def takes_kib(name: str) -> float:
        host, given = room.hosts.get(name), room.at.get(name, set())
        own = sum(view.guests[one].size.memory_kib for one in given if one in view.guests)
        return own + (host.free_memory_kib(view.placement) if host else 0)

    order = sorted(up, key=lambda name: (-takes_kib(name), name))
    sets = {frozenset([name, *[one for one in order if one != name][: count - 1]]) for name in up}
    return sorted(tuple(sorted(one)) for one in sets)


class Reserve:
    """Room for the loss of the worst hosts, while one guest after the other gets its host. A set of
    hosts whose loss leaves no more guests without a place than it does now breaks nothing anew.

    waiting: guests that have no host now.
    """

    def __init__(
        self, view: View, registry: Registry, now_s: float, waiting: Collection[str] = ()
    ) -> None:
        self._view, self._registry = view, registry
        self._now_s, self._waiting = now_s, waiting
        self._now = Room(view, registry, now_s)
        self._lost = {
            hosts: lose(view, registry, hosts, now_s, waiting, self._now)
            for hosts in worst(view, registry, now_s)
        }

    @property
    def short(self) -> list[Lost]:
        """The sets of hosts whose loss would leave a guest without a place."""
        return [one for one in self._lost.values() if one.unplaced]

    def refusal(
        self,
        host: str,
        guest: Guest,
        wanted: GuestWanted | None = None,
        rules: tuple[GuestRule, ...] | None = None,
    ) -> str:
        """What the guest on the host would break, or nothing. wanted: it is of high availability
        then; None: it only takes room. rules: all, as they are then; None: as they are."""
        _, _, lost = self._after(host, guest, wanted, rules)
        worse = []
        for hosts, one in lost.items():
            before = self._lost[hosts].unplaced
            if len(one.unplaced) > len(before):
                worse.append(one.text([name for name in one.unplaced if name not in before]))
        return "; ".join(worse)

    def fits(self, guest_on: Mapping[str, Guest], most: Mapping[str, int]) -> int:
        """How many guests more break nothing, spread evenly. guest_on: host to such a guest there;
        most: host to how many it has room for."""
        low, high = 0.0, 1.0
        if self._bears(guest_on, most):
            return sum(most.values())
        for _ in range(10):
            middle = (low + high) / 2
            part = {host: int(number * middle) for host, number in most.items()}
            low, high = (middle, high) if self._bears(guest_on, part) else (low, middle)
        found = {host: int(number * low) for host, number in most.items()}
        for host in found if len(found) <= FEW_HOSTS else ():
            while found[host] < most[host] and self._bears(
                guest_on, {**found, host: found[host] + 1}
            ):
                found[host] += 1
        return sum(found.values())

    def _bears(self, guest_on: Mapping[str, Guest], numbers: Mapping[str, int]) -> bool:
        rooms = dict(self._view.rooms)
        for host, number in numbers.items():
            if host in rooms:
                more = (guest_on[host],) * number
                rooms[host] = replace(rooms[host], guests=(*rooms[host].guests, *more))
        view, full = replace(self._view, rooms=rooms), {one for one in numbers if numbers[one]}
        now = Room(view, self._registry, self._now_s, self._now)

        def after(hosts: tuple[str, ...]) -> Lost:
            return lose(view, self._registry, hosts, self._now_s, self._waiting, now)

        return all(
            len(after(hosts).unplaced) <= len(one.unplaced)
            for hosts, one in self._lost.items()
            if full & set(one.moved.values())
        )

    def take(
        self,
        host: str,
        guest: Guest,
        wanted: GuestWanted | None = None,
        rules: tuple[GuestRule, ...] | None = None,
    ) -> None:
        """The guest has got the host."""
        self._view, self._registry, lost = self._after(host, guest, wanted, rules)
        self._lost |= lost

    def _after(
        self,
        host: str,
        guest: Guest,
        wanted: GuestWanted | None,
        rules: tuple[GuestRule, ...] | None,
    ) -> tuple[View, Registry, dict[tuple[str, ...], Lost]]:
        """(View, Registry with the guest there, the losses that end in another way by it)."""
        view, registry = self._view, self._registry
        rooms = {name: _without(one, guest.name) for name, one in view.rooms.items()}
        if host in rooms:
            rooms[host] = replace(rooms[host], guests=(*rooms[host].guests, guest))
        view = replace(view, rooms=rooms, rules=view.rules if rules is None else rules)
        if wanted:
            view = replace(view, guests={**view.guests, guest.name: replace(wanted, size=guest)})
            registry = replace(registry, guests={**registry.guests, guest.name: _placed(host)})
        now = Room(view, registry, self._now_s, self._now)
        # where nobody goes to the host, all go where they went without it
        lost = {
            hosts: lose(view, registry, hosts, self._now_s, self._waiting, now)
            for hosts, one in self._lost.items()
            if wanted or host in one.moved.values()
        }
        return view, registry, lost


def refusal(view: View, registry: Registry, guest: str, now_s: float) -> str:
    """Why a guest of the view that is to be added would break the reserve, or nothing."""
    if not view.policy.reserve:
        return ""
    ranked, why = Room(view, registry, now_s).ranked(guest)
    if not ranked:
        return why
    wanted = view.guests[guest]
    others = {name: one for name, one in view.guests.items() if name != guest}
    known = {name: one for name, one in registry.guests.items() if name != guest}
    before = Reserve(replace(view, guests=others), replace(registry, guests=known), now_s)
    return before.refusal(wanted.host or ranked[0], replace(wanted.size, name=guest), wanted)


def _without(host: Host, guest: str) -> Host:
    if all(one.name != guest for one in host.guests):
        return host
    return replace(host, guests=tuple(one for one in host.guests if one.name != guest))


def _placed(host: str) -> GuestRecord:
    return GuestRecord(host=host, places=(GuestPlace(host, 0),))
