"""Selection of a host for a guest: the hosts that can run the guest according to placement, sorted
by the rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from saltvirt.ha.model import safety
from saltvirt.ha.model.messages import ALIVE, WORKING
from saltvirt.ha.model.registry import (
    ERROR,
    IGNORED,
    MAINTENANCE,
    RECOVERING,
    UP,
    HaGuestRecord,
    Registry,
)
from saltvirt.ha.model.view import AFFINITY, ANTI_AFFINITY, GuestConfig, GuestRule
from saltvirt.placement import choose, facts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from saltvirt.ha.model.view import View


@dataclass
class HostCapacity:
    """The capacity of the hosts, which decreases with each decision."""

    view: View
    registry: Registry
    now_s: float
    # a HostCapacity of the same hosts with most guests on the same ones: its results are reused
    like: HostCapacity | None = None

    def __post_init__(self) -> None:
        self._choices: choose.HostSelector
        self._choices = (
            self.like._choices if self.like else choose.HostSelector(self.view.placement)
        )
        self.guests_on: dict[str, set[str]] = {}
        self.starting: dict[str, int] = {}
        self.coming: dict[str, int] = {}
        for name, record in self.registry.guests.items():
            for host in _hosts_of(record):
                self.guests_on.setdefault(host, set()).add(name)
            if record.run and record.state == RECOVERING:
                self.starting[record.host] = self.starting.get(record.host, 0) + 1
            elif record.origin and not record.host:
                self.coming[record.better] = self.coming.get(record.better, 0) + 1

    @cached_property
    def hosts(self) -> dict[str, facts.Host]:
        """Return placement's Hosts, with the guests that the registry has on them."""
        like = self.like
        if like is None:
            return {name: self._host(host) for name, host in self.view.placement_hosts.items()}
        return {
            name: like.hosts[name]
            if host is like.view.placement_hosts.get(name)
            and like.guests_on.get(name) == self.guests_on.get(name)
            else self._host(host)
            for name, host in self.view.placement_hosts.items()
        }

    def _host(self, host: facts.Host) -> facts.Host:
        unmanaged = [guest for guest in host.guests if guest.name not in self.view.guests]
        managed = [_size(self.view.guests[name]) for name in sorted(self.guests_on.get(host.name,
        ()))
                 if name in self.view.guests]  # fmt: skip
        return replace(host, guests=(*unmanaged, *managed))

    def usable(self, name: str, guest: str) -> str:
        """Return why the host does not accept the guest now, or ""."""
        record, arrived = self.registry.host(name), self.view.beats.get(name)
        if record.state == MAINTENANCE:
            return "in maintenance"
        if record.state != UP:
            return record.state
        if arrived is None or self.now_s - arrived.at_s >= self.view.policy.suspect_s:
            return "silent"
        beat = arrived.beat
        if beat.boot != record.boot or beat.phase != WORKING:
            return "it is shutting down"
        silent_s = self.view.storage_silent_s(beat, guest) or 0
        if silent_s >= self.view.policy.storage_lost_s / 2:
            return "it cannot reach its storage"
        return "" if name in self.view.placement_hosts else "its capacity is not known yet"

    def ranked(self, name: str, but: Collection[str] = ()) -> tuple[list[str], str]:
        """Return (hosts for the guest, the best one first; why the other hosts were rejected). but:
        hosts to exclude."""
        config = self.view.guests[name]
        reasons = {host: self.usable(host, name) for host in self.view.members}
        reasons |= dict.fromkeys(but, "the guest failed there")
        reasons |= {host: reason for host in reasons if (reason := self.conflict(name, host))}
        open_to = [self.hosts[host] for host in reasons if not reasons[host]]
        rejections = [f"{host}: {reason}" for host, reason in sorted(reasons.items()) if reason]
        if not open_to:
            return [], "; ".join(rejections)
        request = facts.of_guest(_size(config), next(iter(self.hosts.values())))
        able = [self._without(host, name) for host in open_to]
        coming = self._coming(name)
        decision = self._choices.choose(able, self._with(request, coming))
        if not decision.ranked:  # coming guests that are down may stay down
            alive = [guest for guest in coming if self._hosts(guest)]
            decision = self._choices.choose(able, self._with(request, alive))
        order = {candidate.host: position for position, candidate in enumerate(decision.ranked)}
        ranked = sorted(order, key=lambda host: (*self._penalty(name, host), order[host]))
        return ranked, "; ".join(rejections + ([decision.reasons()] if decision.rejected else []))

    def _without(self, host: facts.Host, name: str) -> facts.Host:
        if name not in self.guests_on.get(host.name, ()):
            return host
        return replace(host, guests=tuple(guest for guest in host.guests if guest.name != name))

    def _coming(self, name: str) -> set[str]:
        """Return the guests that must follow this guest to the same host."""
        return {
            peer
            for rule in self._rules(name, AFFINITY)
            for peer in rule.guests
            if rule.strict and peer != name and peer in self.view.guests
            and all(self._is_emptied(host, peer) for host in self._hosts(peer))
        }  # fmt: skip

    def _with(
        self, request: facts.PlacementRequest, coming: Iterable[str]
    ) -> facts.PlacementRequest:
        """Return the request with the requirements of the coming guests added."""
        sizes = [self.view.guests[guest].size for guest in coming]
        return replace(
            request,
            vcpus=request.vcpus + sum(size.vcpus for size in sizes),
            memory_kib=request.memory_kib + sum(size.memory_kib for size in sizes),
        )

    def _hosts(self, name: str) -> list[str]:
        return [host for host, names in self.guests_on.items() if name in names]

    def _is_emptied(self, name: str, guest: str) -> bool:
        """Return whether all guests of the host are to go to other hosts, or all guests there that
        use the same storage as the guest."""
        record, arrived = self.registry.host(name), self.view.beats.get(name)
        beat = arrived.beat if arrived and arrived.beat.boot == record.boot else None
        lost_s = self.view.policy.storage_lost_s
        lost = beat is not None and (self.view.storage_silent_s(beat, guest) or 0) >= lost_s
        leaves = lost or (beat is not None and beat.leaves)
        return record.state == MAINTENANCE or (record.state == UP and leaves)

    def _rules(self, name: str, kind: str) -> Iterable[GuestRule]:
        return [rule for rule in self.view.rules if rule.kind == kind and name in rule.guests]

    def _beside(self, rule: GuestRule, name: str, host: str) -> int:
        """Return how many of the rule's other guests are on the host."""
        return len(self.guests_on.get(host, set()) & (set(rule.guests) - {name}))

    def _is_bound_elsewhere(self, rule: GuestRule, name: str, host: str) -> bool:
        """Return whether another guest of the rule is on another host and will not follow to this
        host."""
        peers = set(rule.guests) - {name}
        return any(
            not self._follows(peer, peer_host, host)
            for peer_host, guests in self.guests_on.items() if peer_host != host
            for peer in peers & guests
        )  # fmt: skip

    def _follows(self, name: str, source: str, host: str) -> bool:
        """Return whether the guest is to leave its host in any case, and may go to the other
        host."""
        state = self.registry.guests.get(name, HaGuestRecord()).state
        goes = self._is_emptied(source, name) and state not in (ERROR, IGNORED)
        return goes and not self._exclusion(name, host)

    def conflict(self, name: str, host: str) -> str:
        """Return what binds the guest to another host or excludes it from this one, or ""."""
        reason = self._exclusion(name, host)
        strict = [rule for rule in self._rules(name, AFFINITY) if rule.strict]
        if not reason and any(self._is_bound_elsewhere(rule, name, host) for rule in strict):
            return "a guest of the same strict affinity rule is on another host"
        return reason

    def _exclusion(self, name: str, host: str) -> str:
        """Return the same as ``conflict``, without regard to guests that must be on the same
        host."""
        binding = self.view.bindings.get(name)
        if binding is not None and binding.host != host:
            return f"it can run on {binding.host} only: {binding.reason}"
        if self._is_stale_copy(name, host):
            return "an outdated instance of it still runs there"
        for rule in self._rules(name, ""):
            if rule.strict and host not in rule.hosts:
                return "a strict rule requires other hosts"
        for rule in self._rules(name, ANTI_AFFINITY):
            if rule.strict and self._beside(rule, name, host):
                return "a guest of the same strict anti-affinity rule is there"
        return ""

    def _is_stale_copy(self, name: str, host: str) -> bool:
        """Return whether the host lost the lease of the guest's disks, is alive, and has not killed
        the guest yet."""
        arrived, record = self.view.beats.get(host), self.registry.guests.get(name)
        beat = arrived.beat if arrived else None
        given_up = beat is not None and safety.is_given_up(self.registry.host(host), beat.boot)
        status = beat.guests.get(name) if beat and not given_up else None
        alive = status is not None and status.state in ALIVE
        return alive and record is not None and host not in _hosts_of(record)

    def rank(self, name: str, host: str) -> int:
        """Return the host's rank for the guest according to the rules: a higher rank is better; 0
        for a host that no rule names."""
        return max((rule.hosts.get(host, 0) for rule in self._rules(name, "")), default=0)

    def _penalty(self, name: str, host: str) -> tuple[int, int, int]:
        conflicts = sum(self._beside(rule, name, host) for rule in self._rules(name, ANTI_AFFINITY))
        away = sum(not self._beside(rule, name, host) for rule in self._rules(name, AFFINITY))
        last = self.registry.guests[name].last if name in self.registry.guests else ""
        return -self.rank(name, host), conflicts + away, host != last

    def is_busy(self, host: str) -> bool:
        """Return whether the maximum number of guests is starting on the host."""
        return self.starting.get(host, 0) >= self.view.policy.starts_at_once

    def is_awaited(self, host: str) -> bool:
        """Return whether the maximum number of guests is starting on the host or being stopped
        elsewhere to start there."""
        starts = self.starting.get(host, 0) + self.coming.get(host, 0)
        return starts >= self.view.policy.starts_at_once

    def take(self, name: str, host: str, starts: bool = True) -> None:
        """Record that the guest has got the host."""
        self.guests_on.setdefault(host, set()).add(name)
        self.starting[host] = self.starting.get(host, 0) + starts
        if host in self.hosts:
            self.hosts[host] = self._host(self.view.placement_hosts[host])


def _hosts_of(record: HaGuestRecord) -> set[str]:
    """Return the hosts where the guest may run or is to run. A guest that is to be down, and is
    down, has no host."""
    owner = record.host if record.run or record.state == IGNORED else ""
    return {*(location.host for location in record.locations), owner, record.target} - {""}


def _size(config: GuestConfig) -> facts.Guest:
    if (config.size.name, config.size.state) == (config.name, "running"):
        return config.size
    return replace(config.size, name=config.name, state="running")
