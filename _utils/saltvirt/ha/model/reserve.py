"""Simulation of what would happen to the guests if hosts died now, and the capacity that is
reserved for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

from saltvirt.ha.model.host_capacity import HostCapacity
from saltvirt.ha.model.registry import UP, GuestLocation, HaGuestRecord, HostRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from saltvirt.ha.model.registry import Registry
    from saltvirt.ha.model.view import GuestConfig, GuestRule, View
    from saltvirt.placement.facts import Guest, Host

# up to this number of sets of hosts, each is simulated; of more sets, only the worst
MAX_SETS = 60
# up to this number of hosts, each is filled up separately to count the guests that fit
FEW_HOSTS = 12


@dataclass(frozen=True)
class HostLoss:
    """The result of a simulated loss of hosts. placements: guest to the host that would run it.
    unplaced: guest to the reason why no host would run it."""

    hosts: tuple[str, ...]
    placements: dict[str, str]
    unplaced: dict[str, str]

    def text(self, names: Collection[str] | None = None) -> str:
        """Return a text about the missing capacity. names: for these guests; None: for all guests
        without a host."""
        guests = ", ".join(self.unplaced if names is None else names)
        return f"if {' and '.join(self.hosts)} failed, no host would have capacity for {guests}"


def simulate_loss(
    view: View,
    registry: Registry,
    hosts: Collection[str],
    now_s: float,
    waiting: Collection[str] = (),
    current: HostCapacity | None = None,
) -> HostLoss:
    """Return what would happen to the guests that may run on the hosts if all of these hosts died.
    waiting: guests that have no host now and need one in addition. current: the HostCapacity before
    the loss."""
    displaced = [
        name
        for name, record in registry.guests.items()
        if name in view.guests
        and (name in waiting or any(location.host in hosts for location in record.locations))
    ]
    guests = {
        **registry.guests,
        **{
            name: replace(registry.guests[name], locations=(), host="", target="")
            for name in displaced
        },
    }
    host_records = {**registry.hosts, **{host: HostRecord("lost") for host in hosts}}
    capacity = HostCapacity(
        view, replace(registry, guests=guests, hosts=host_records), now_s, current
    )
    placements, unplaced = {}, {}
    for name in sorted(displaced, key=lambda guest: (-view.guests[guest].priority, guest)):
        ranked, reason = capacity.ranked(name)
        if ranked:
            placements[name] = ranked[0]
            capacity.take(name, ranked[0])
        else:
            unplaced[name] = reason
    return HostLoss(tuple(hosts), placements, unplaced)


def worst(view: View, registry: Registry, now_s: float) -> list[tuple[str, ...]]:
    """Return the sets of ``reserve`` hosts each whose loss is to be simulated. If there are too
    many sets, combine each host only with the hosts whose loss takes the most from the others:
    their free memory and the memory of their guests."""
    up = sorted(name for name, item in registry.hosts.items() if item.state == UP)
    count = min(view.policy.reserve, len(up))
    if not count:
        return []
    if comb(len(up), count) <= MAX_SETS:
        return [*combinations(up, count)]
    capacity = HostCapacity(view, registry, now_s)

    def takes_kib(name: str) -> float:
        host, guest_names = capacity.hosts.get(name), capacity.guests_on.get(name, set())
        own_kib = sum(
            view.guests[guest].size.memory_kib for guest in guest_names if guest in view.guests
        )
        return own_kib + (host.free_memory_kib(view.placement) if host else 0)

    order = sorted(up, key=lambda name: (-takes_kib(name), name))
    sets = {
        frozenset([name, *[item for item in order if item != name][: count - 1]]) for name in up
    }
    return sorted(tuple(sorted(item)) for item in sets)


class Reserve:
    """Capacity for the loss of the worst hosts, while guests get their hosts one after the other. A
    guest breaks the reserve only if the loss of a set of hosts would leave more guests without a
    host than before.

    waiting: guests that have no host now.
    """

    def __init__(
        self, view: View, registry: Registry, now_s: float, waiting: Collection[str] = ()
    ) -> None:
        self._view, self._registry = view, registry
        self._now_s, self._waiting = now_s, waiting
        self._current = HostCapacity(view, registry, now_s)
        self._losses = {
            hosts: simulate_loss(view, registry, hosts, now_s, waiting, self._current)
            for hosts in worst(view, registry, now_s)
        }

    @property
    def shortfalls(self) -> list[HostLoss]:
        """Return the losses that would leave a guest without a host."""
        return [loss for loss in self._losses.values() if loss.unplaced]

    def refusal(
        self,
        host: str,
        guest: Guest,
        config: GuestConfig | None = None,
        rules: tuple[GuestRule, ...] | None = None,
    ) -> str:
        """Return what the guest on the host would break, or "". config: the guest's configuration,
        if it is to be of high availability; None: the guest only uses capacity. rules: all rules
        that apply then; None: the present rules."""
        _, _, losses = self._after(host, guest, config, rules)
        worse = []
        for hosts, loss in losses.items():
            before = self._losses[hosts].unplaced
            if len(loss.unplaced) > len(before):
                worse.append(loss.text([name for name in loss.unplaced if name not in before]))
        return "; ".join(worse)

    def fits(self, guest_on: Mapping[str, Guest], limits: Mapping[str, int]) -> int:
        """Return how many more guests, spread evenly, break nothing. guest_on: host to such a guest
        on it; limits: host to the maximum number of guests on it."""
        low, high = 0.0, 1.0
        if self._bears(guest_on, limits):
            return sum(limits.values())
        for _ in range(10):
            middle = (low + high) / 2
            part = {host: int(number * middle) for host, number in limits.items()}
            low, high = (middle, high) if self._bears(guest_on, part) else (low, middle)
        counts = {host: int(number * low) for host, number in limits.items()}
        for host in counts if len(counts) <= FEW_HOSTS else ():
            while counts[host] < limits[host] and self._bears(
                guest_on, {**counts, host: counts[host] + 1}
            ):
                counts[host] += 1
        return sum(counts.values())

    def _bears(self, guest_on: Mapping[str, Guest], numbers: Mapping[str, int]) -> bool:
        placement_hosts = dict(self._view.placement_hosts)
        for host, number in numbers.items():
            if host in placement_hosts:
                extra = (guest_on[host],) * number
                placement_hosts[host] = replace(
                    placement_hosts[host], guests=(*placement_hosts[host].guests, *extra)
                )
        view, full = (
            replace(self._view, placement_hosts=placement_hosts),
            {entry for entry in numbers if numbers[entry]},
        )
        current = HostCapacity(view, self._registry, self._now_s, self._current)

        def after(hosts: tuple[str, ...]) -> HostLoss:
            return simulate_loss(view, self._registry, hosts, self._now_s, self._waiting, current)

        return all(
            len(after(hosts).unplaced) <= len(entry.unplaced)
            for hosts, entry in self._losses.items()
            if full & set(entry.placements.values())
        )

    def take(
        self,
        host: str,
        guest: Guest,
        config: GuestConfig | None = None,
        rules: tuple[GuestRule, ...] | None = None,
    ) -> None:
        """Record that the guest has got the host."""
        self._view, self._registry, losses = self._after(host, guest, config, rules)
        self._losses |= losses

    def _after(
        self,
        host: str,
        guest: Guest,
        config: GuestConfig | None,
        rules: tuple[GuestRule, ...] | None,
    ) -> tuple[View, Registry, dict[tuple[str, ...], HostLoss]]:
        """Return (View, Registry with the guest on the host, the losses whose results change
        because of it)."""
        view, registry = self._view, self._registry
        placement_hosts = {
            name: _without(entry, guest.name) for name, entry in view.placement_hosts.items()
        }
        if host in placement_hosts:
            placement_hosts[host] = replace(
                placement_hosts[host], guests=(*placement_hosts[host].guests, guest)
            )
        view = replace(
            view, placement_hosts=placement_hosts, rules=view.rules if rules is None else rules
        )
        if config:
            view = replace(view, guests={**view.guests, guest.name: replace(config, size=guest)})
            registry = replace(registry, guests={**registry.guests, guest.name: _placed(host)})
        current = HostCapacity(view, registry, self._now_s, self._current)
        # if no guest goes to the host, all guests go where they went before
        losses = {
            hosts: simulate_loss(view, registry, hosts, self._now_s, self._waiting, current)
            for hosts, entry in self._losses.items()
            if config or host in entry.placements.values()
        }
        return view, registry, losses


def refusal(view: View, registry: Registry, guest: str, now_s: float) -> str:
    """Return why a guest of the view that is to be added would break the reserve, or ""."""
    if not view.policy.reserve:
        return ""
    ranked, reason = HostCapacity(view, registry, now_s).ranked(guest)
    if not ranked:
        return reason
    config = view.guests[guest]
    other_configs = {name: entry for name, entry in view.guests.items() if name != guest}
    other_records = {name: entry for name, entry in registry.guests.items() if name != guest}
    before = Reserve(
        replace(view, guests=other_configs), replace(registry, guests=other_records), now_s
    )
    return before.refusal(config.host or ranked[0], replace(config.size, name=guest), config)


def _without(host: Host, guest: str) -> Host:
    if all(resident.name != guest for resident in host.guests):
        return host
    return replace(
        host, guests=tuple(resident for resident in host.guests if resident.name != guest)
    )


def _placed(host: str) -> HaGuestRecord:
    return HaGuestRecord(host=host, locations=(GuestLocation(host, 0),))
