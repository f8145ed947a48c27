"""Where a guest goes: the hosts that may take it by placement's own account, then by the rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from saltvirt.ha import safety
from saltvirt.ha.facts import ALIVE, WORKING
from saltvirt.ha.registry import ERROR, IGNORED, MAINTENANCE, RECOVERING, UP, GuestRecord, Registry
from saltvirt.ha.view import APART, TOGETHER, GuestRule, GuestWanted
from saltvirt.placement import choose, facts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from saltvirt.ha.view import View


@dataclass
class Room:
    """What the hosts have room for, while one decision after the other takes of it."""

    view: View
    registry: Registry
    now_s: float
    # one of the same hosts, with most guests where they are here: what it found out holds here, too
    like: Room | None = None

    def __post_init__(self) -> None:
        self._choices: choose.Choices
        self._choices = self.like._choices if self.like else choose.Choices(self.view.placement)
        self.at: dict[str, set[str]] = {}
        self.starting: dict[str, int] = {}
        self.coming: dict[str, int] = {}
        for name, record in self.registry.guests.items():
            for host in _hosts_of(record):
                self.at.setdefault(host, set()).add(name)
            if record.run and record.state == RECOVERING:
                self.starting[record.host] = self.starting.get(record.host, 0) + 1
            elif record.left and not record.host:
                self.coming[record.better] = self.coming.get(record.better, 0) + 1

    @cached_property
    def hosts(self) -> dict[str, facts.Host]:
        """placement's Hosts, with the guests that the registry has there."""
        like = self.like
        if like is None:
            return {name: self._host(host) for name, host in self.view.rooms.items()}
        return {
            name: like.hosts[name]
            if host is like.view.rooms.get(name) and like.at.get(name) == self.at.get(name)
            else self._host(host)
            for name, host in self.view.rooms.items()
        }

    def _host(self, host: facts.Host) -> facts.Host:
        own = [guest for guest in host.guests if guest.name not in self.view.guests]
        given = [_size(self.view.guests[name]) for name in sorted(self.at.get(host.name, ()))
                 if name in self.view.guests]  # fmt: skip
        return replace(host, guests=(*own, *given))

    def usable(self, name: str, guest: str) -> str:
        """Why a host does not take the guest now, or nothing."""
        record, arrived = self.registry.host(name), self.view.beats.get(name)
        if record.state == MAINTENANCE:
            return "in maintenance"
        if record.state != UP:
            return record.state
        if arrived is None or self.now_s - arrived.at_s >= self.view.policy.suspect_s:
            return "silent"
        beat = arrived.beat
        if beat.boot != record.boot or beat.phase != WORKING:
            return "it shuts down"
        silent_s = self.view.storage_silent_s(beat, guest) or 0
        if silent_s >= self.view.policy.storage_lost_s / 2:
            return "does not reach its storage"
        return "" if name in self.view.rooms else "its room is not known yet"

    def ranked(self, name: str, but: Collection[str] = ()) -> tuple[list[str], str]:
        """(hosts for the guest, best first; why those that fell did). but: hosts not taken."""
        wanted = self.view.guests[name]
        why = {host: self.usable(host, name) for host in self.view.members}
        why |= dict.fromkeys(but, "it failed there")
        why |= {host: reason for host in why if (reason := self.against(name, host))}
        open_to = [self.hosts[host] for host in why if not why[host]]
        said = [f"{host}: {reason}" for host, reason in sorted(why.items()) if reason]
        if not open_to:
            return [], "; ".join(said)
        request = facts.of_guest(_size(wanted), next(iter(self.hosts.values())))
        able = [self._without(host, name) for host in open_to]
        coming = self._coming(name)
        found = self._choices.choose(able, self._with(request, coming))
        if not found.ranked:  # those that are down may stay so
            alive = [other for other in coming if self._hosts(other)]
            found = self._choices.choose(able, self._with(request, alive))
        order = {one.host: place for place, one in enumerate(found.ranked)}
        ranked = sorted(order, key=lambda host: (*self._worse(name, host), order[host]))
        return ranked, "; ".join(said + ([found.reasons()] if found.rejected else []))

    def _without(self, host: facts.Host, name: str) -> facts.Host:
        if name not in self.at.get(host.name, ()):
            return host
        return replace(host, guests=tuple(one for one in host.guests if one.name != name))

    def _coming(self, name: str) -> set[str]:
        """Those that must come to the same host after it."""
        return {
            other
            for rule in self._rules(name, TOGETHER)
            for other in rule.guests
            if rule.strict and other != name and other in self.view.guests
            and all(self._is_emptied(host, other) for host in self._hosts(other))
        }  # fmt: skip

    def _with(
        self, request: facts.PlacementRequest, coming: Iterable[str]
    ) -> facts.PlacementRequest:
        """The request with the room of others as well."""
        sizes = [self.view.guests[other].size for other in coming]
        return replace(
            request,
            vcpus=request.vcpus + sum(size.vcpus for size in sizes),
            memory_kib=request.memory_kib + sum(size.memory_kib for size in sizes),
        )

    def _hosts(self, name: str) -> list[str]:
        return [host for host, names in self.at.items() if name in names]

    def _is_emptied(self, name: str, guest: str) -> bool:
        """All guests of the host are to go to others, or all with that guest's storage."""
        record, arrived = self.registry.host(name), self.view.beats.get(name)
        beat = arrived.beat if arrived and arrived.beat.boot == record.boot else None
        lost_s = self.view.policy.storage_lost_s
        lost = beat is not None and (self.view.storage_silent_s(beat, guest) or 0) >= lost_s
        leaves = lost or (beat is not None and beat.leaves)
        return record.state == MAINTENANCE or (record.state == UP and leaves)

    def _rules(self, name: str, kind: str) -> Iterable[GuestRule]:
        return [rule for rule in self.view.rules if rule.kind == kind and name in rule.guests]

    def _beside(self, rule: GuestRule, name: str, host: str) -> int:
        """How many of the others of a rule are on the host."""
        return len(self.at.get(host, set()) & (set(rule.guests) - {name}))

    def _is_bound_elsewhere(self, rule: GuestRule, name: str, host: str) -> bool:
        """Another one of the rule is on another host, and does not come to this one after it."""
        others = set(rule.guests) - {name}
        return any(
            not self._follows(other, there, host)
            for there, guests in self.at.items() if there != host
            for other in others & guests
        )  # fmt: skip

    def _follows(self, name: str, there: str, host: str) -> bool:
        """The guest is to leave a host in any case, and may come to the other one."""
        state = self.registry.guests.get(name, GuestRecord()).state
        goes = self._is_emptied(there, name) and state not in (ERROR, IGNORED)
        return goes and not self._kept_off(name, host)

    def against(self, name: str, host: str) -> str:
        """What ties the guest to another host, or keeps it off this one; or nothing."""
        why = self._kept_off(name, host)
        strict = [rule for rule in self._rules(name, TOGETHER) if rule.strict]
        if not why and any(self._is_bound_elsewhere(rule, name, host) for rule in strict):
            return "a guest that it must be with is elsewhere"
        return why

    def _kept_off(self, name: str, host: str) -> str:
        """The same, whatever guests it must be with."""
        tied = self.view.tied.get(name)
        if tied is not None and tied.host != host:
            return f"it can run on {tied.host} alone: {tied.why}"
        if self._is_left_over(name, host):
            return "an older start of it is alive there, and is to be killed first"
        for rule in self._rules(name, ""):
            if rule.strict and host not in rule.hosts:
                return "a strict rule names other hosts"
        for rule in self._rules(name, APART):
            if rule.strict and self._beside(rule, name, host):
                return "a guest is there that it must be apart from"
        return ""

    def _is_left_over(self, name: str, host: str) -> bool:
        """The host lost the lease of the guest's disks, lives, and has not killed it yet."""
        arrived, record = self.view.beats.get(host), self.registry.guests.get(name)
        beat = arrived.beat if arrived else None
        gone = beat is not None and safety.is_given_up(self.registry.host(host), beat.boot)
        there = beat.guests.get(name) if beat and not gone else None
        alive = there is not None and there.state in ALIVE
        return alive and record is not None and host not in _hosts_of(record)

    def rank(self, name: str, host: str) -> int:
        """What the rules of hosts say: the higher, the better; 0 for those that none names."""
        return max((rule.hosts.get(host, 0) for rule in self._rules(name, "")), default=0)

    def _worse(self, name: str, host: str) -> tuple[int, int, int]:
        apart = sum(self._beside(rule, name, host) for rule in self._rules(name, APART))
        away = sum(not self._beside(rule, name, host) for rule in self._rules(name, TOGETHER))
        last = self.registry.guests[name].last if name in self.registry.guests else ""
        return -self.rank(name, host), apart + away, host != last

    def is_busy(self, host: str) -> bool:
        """As many guests start there as may at one time."""
        return self.starting.get(host, 0) >= self.view.policy.starts_at_once

    def is_awaited(self, host: str) -> bool:
        """As many start there as may, or are being stopped elsewhere to start there."""
        starts = self.starting.get(host, 0) + self.coming.get(host, 0)
        return starts >= self.view.policy.starts_at_once

    def take(self, name: str, host: str, starts: bool = True) -> None:
        """The guest has got the host."""
        self.at.setdefault(host, set()).add(name)
        self.starting[host] = self.starting.get(host, 0) + starts
        if host in self.hosts:
            self.hosts[host] = self._host(self.view.rooms[host])


def _hosts_of(record: GuestRecord) -> set[str]:
    """Where it may run, or is to. One that is to be down, and is, is nowhere."""
    own = record.host if record.run or record.state == IGNORED else ""
    return {*(place.host for place in record.places), own, record.target} - {""}


def _size(wanted: GuestWanted) -> facts.Guest:
    if (wanted.size.name, wanted.size.state) == (wanted.name, "running"):
        return wanted.size
    return replace(wanted.size, name=wanted.name, state="running")
