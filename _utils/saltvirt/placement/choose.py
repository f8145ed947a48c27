"""Filters, then weights: the ranking, and for each host that fell the reason."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from saltvirt.placement import filters, weights

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from types import ModuleType

    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy

# scores that differ by less are equal: a digest of the guest's name and the host's decides, so that
# the answer is stable and a crowd of guests does not ask for the same host
EPSILON = 1e-9
# in a message, so many hosts of one reason are named
NAMED = 5
# raw scores that differ by less are the same: scaling to 0…1 would blow the noise of two
# disks' free space up to a full difference
NOISE = 0.01
# (filter, why the host was rejected by it)
Reason = tuple[str, str]
# the filters at which a host falls because others have taken what it had
ROOM = ("vcpu", "memory", "disk", "pools", "separate")


@dataclass(frozen=True)
class Candidate:
    """A host that passed. parts: weigher to its share of the score."""

    host: str
    score: float
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """ranked: Candidates, best first. rejected: host to (filter, reason)."""

    ranked: tuple[Candidate, ...]
    rejected: dict[str, Reason]

    def reasons(self) -> str:
        """One clause per reason, for a message: each with the hosts that it rejects."""
        hosts: dict[str, list[str]] = {}
        for host, (_, why) in sorted(self.rejected.items()):
            hosts.setdefault(why, []).append(host)
        return "; ".join(f"{_some(found)}: {why}" for why, found in hosts.items())


def _some(hosts: list[str]) -> str:
    shown = ", ".join(hosts[:NAMED])
    return f"{shown} and {len(hosts) - NAMED} more" if len(hosts) > NAMED else shown


def choose(hosts: Iterable[Host], request: PlacementRequest, policy: PlacementPolicy) -> Decision:
    """Decides where the guest of the request may go.

    hosts: iterable of facts.Host. Returns a Decision; no host left is an empty ranking.
    """
    passed, rejected = [], {}
    for host in hosts:
        asked = request.at(host)
        fell = _first(host, asked, policy, filters.ALL)
        if fell:
            rejected[host.name] = fell
        else:
            passed.append((host, asked))
    return Decision(tuple(_rank(passed, request.name, policy)), rejected)


def admits(
    host: Host,
    request: PlacementRequest,
    policy: PlacementPolicy,
    but: Collection[str] = (),
    only: Collection[str] | None = None,
) -> Reason | None:
    """(filter, reason) why the host does not take the guest, or None. It may have it already: a
    guest that wants more, or that is started, does not stand in its own way."""
    others = tuple(guest for guest in host.guests if guest.name != request.name)
    coming = tuple(guest for guest in host.arriving if guest.name != request.name)
    there = replace(host, guests=others, arriving=coming)
    return first_reason(there, request, policy, but, only)


def first_reason(
    host: Host,
    request: PlacementRequest,
    policy: PlacementPolicy,
    but: Collection[str] = (),
    only: Collection[str] | None = None,
) -> Reason | None:
    """(filter, reason) of the first filter that the host falls at, or None.

    but: names of filters that are not asked; only: of those that are.
    """
    return _first(host, request.at(host), policy, _some_filters(but, only))


def _first(
    host: Host, asked: PlacementRequest, policy: PlacementPolicy, modules: Iterable[ModuleType]
) -> Reason | None:
    for module in modules:
        why = module.reason(host, asked, policy)
        if why:
            return filters.name_of(module), why
    return None


def _some_filters(but: Collection[str], only: Collection[str] | None) -> list[ModuleType]:
    named = {filters.name_of(module): module for module in filters.ALL}
    return [named[name] for name in named if name not in but and name in (only or named)]


def _rank(
    passed: list[tuple[Host, PlacementRequest]], guest: str, policy: PlacementPolicy
) -> list[Candidate]:
    """passed: pairs of a Host and the PlacementRequest as it is there."""
    parts: dict[str, dict[str, float]] = {host.name: {} for host, _ in passed}
    for name, module in weights.ALL.items():
        multiplier = policy.weights.get(name, 0)
        if not multiplier or not passed:
            continue
        raw = {host.name: module.score(host, asked, policy) for host, asked in passed}
        for host, value in _scaled(raw).items():
            parts[host][name] = multiplier * value
    found = [Candidate(host, sum(shares.values()), shares) for host, shares in parts.items()]
    return sorted(found, key=lambda c: (-round(c.score / EPSILON), _digest(guest, c.host), c.host))


def _digest(guest: str, host: str) -> bytes:
    return hashlib.sha256(f"{guest}{host}".encode()).digest()


def _scaled(raw: dict[str, float]) -> dict[str, float]:
    low, high = min(raw.values()), max(raw.values())
    if high - low < NOISE:
        return dict.fromkeys(raw, 0.0)
    return {host: (value - low) / (high - low) for host, value in raw.items()}
