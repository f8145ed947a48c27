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
    """ranked: Candidates, best first. rejected: host to (filter, reason). warning: what speaks
    against the first, and is only said."""

    ranked: tuple[Candidate, ...]
    rejected: dict[str, Reason]
    warning: str = ""

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
    return Choices(policy).choose(hosts, request)


@dataclass(frozen=True)
class _Seen:
    """What was found of a host: the reason it fell for, or weigher to its raw score."""

    host: Host
    fell: Reason | None
    scores: dict[str, float]


class Choices:
    """The same for many guests, one after the other. Of guests that differ in nothing but their
    names only the hosts are looked at again that changed since: those that are another object."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self._policy = policy
        self._alike: PlacementRequest | None = None
        self._seen: dict[str, _Seen] = {}

    def choose(self, hosts: Iterable[Host], request: PlacementRequest) -> Decision:
        """As :func:`choose`."""
        alike = replace(request, name="")  # no filter and no weigher goes by the name
        if alike != self._alike:
            self._alike, self._seen = alike, {}
        found = [self._look(host, request) for host in hosts]
        passed = {one.host.name: one.scores for one in found if not one.fell}
        rejected = {one.host.name: one.fell for one in found if one.fell}
        return Decision(tuple(_rank(passed, request.name, self._policy)), rejected)

    def _look(self, host: Host, request: PlacementRequest) -> _Seen:
        seen = self._seen.get(host.name)
        if seen is None or seen.host is not host:
            asked = request.at(host)
            fell = _first(host, asked, self._policy, filters.ALL)
            scores = {} if fell else _scores(host, asked, self._policy)
            seen = self._seen[host.name] = _Seen(host, fell, scores)
        return seen


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


def _scores(host: Host, asked: PlacementRequest, policy: PlacementPolicy) -> dict[str, float]:
    """Weigher to its raw score. asked: the PlacementRequest as it is on the host."""
    return {
        name: module.score(host, asked, policy)
        for name, module in weights.ALL.items()
        if policy.weights.get(name, 0)
    }


def _rank(
    passed: dict[str, dict[str, float]], guest: str, policy: PlacementPolicy
) -> list[Candidate]:
    """passed: host to its raw scores."""
    parts: dict[str, dict[str, float]] = {host: {} for host in passed}
    for name in next(iter(passed.values()), {}):
        raw = {host: scores[name] for host, scores in passed.items()}
        for host, value in _scaled(raw).items():
            parts[host][name] = policy.weights[name] * value
    found = [Candidate(host, sum(shares.values()), shares) for host, shares in parts.items()]
    return sorted(found, key=lambda c: (-round(c.score / EPSILON), _digest(guest, c.host), c.host))


def _digest(guest: str, host: str) -> bytes:
    return hashlib.sha256(f"{guest}{host}".encode()).digest()


def _scaled(raw: dict[str, float]) -> dict[str, float]:
    low, high = min(raw.values()), max(raw.values())
    if high - low < NOISE:
        return dict.fromkeys(raw, 0.0)
    return {host: (value - low) / (high - low) for host, value in raw.items()}
