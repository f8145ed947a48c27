"""Rank hosts with filters and weights, and explain each rejection."""

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

# scores that differ by less are equal; a digest of the guest's and the host's name then decides, so
# that the result is stable and many guests do not choose the same host
EPSILON = 1e-9
# maximum number of hosts that a message names per reason
NAMED = 5
# raw scores that differ by less are equal: scaling to 0…1 would magnify the noise in the free space
# of disks
NOISE = 0.01
# (filter, why it rejects the host)
Reason = tuple[str, str]
# filters that reject a host because of other guests
ROOM = ("vcpu", "memory", "disk", "pools", "separate")


@dataclass(frozen=True)
class Candidate:
    """A host that passed all filters. parts: weigher to its share of the score."""

    host: str
    score: float
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PlacementDecision:
    """ranked: Candidates, best first. rejected: host to (filter, reason). warning: a disadvantage
    of the first host, for display."""

    ranked: tuple[Candidate, ...]
    rejected: dict[str, Reason]
    warning: str = ""

    def reasons(self) -> str:
        """One clause per reason, with the hosts that it rejects, for a message."""
        hosts: dict[str, list[str]] = {}
        for host, (_, reason) in sorted(self.rejected.items()):
            hosts.setdefault(reason, []).append(host)
        return "; ".join(f"{_some(names)}: {reason}" for reason, names in hosts.items())


def _some(hosts: list[str]) -> str:
    shown = ", ".join(hosts[:NAMED])
    return f"{shown} and {len(hosts) - NAMED} more" if len(hosts) > NAMED else shown


def choose(
    hosts: Iterable[Host], request: PlacementRequest, policy: PlacementPolicy
) -> PlacementDecision:
    """Decide where the guest of the request may run.

    Returns a PlacementDecision, whose ranking is empty if no host is left.
    """
    return HostSelector(policy).choose(hosts, request)


@dataclass(frozen=True)
class _Evaluation:
    """The result for one host: the rejection, or weigher to its raw score."""

    host: Host
    rejection: Reason | None
    scores: dict[str, float]


class HostSelector:
    """Chooses hosts for several guests in a row. If a guest differs from the previous one in its
    name only, just the hosts that have changed (other objects) are evaluated again."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self._policy = policy
        self._nameless: PlacementRequest | None = None
        self._evaluations: dict[str, _Evaluation] = {}

    def choose(self, hosts: Iterable[Host], request: PlacementRequest) -> PlacementDecision:
        """See :func:`choose`."""
        nameless = replace(request, name="")  # no filter or weight depends on the name
        if nameless != self._nameless:
            self._nameless, self._evaluations = nameless, {}
        evaluations = [self._evaluate(host, request) for host in hosts]
        passed = {
            evaluation.host.name: evaluation.scores
            for evaluation in evaluations
            if not evaluation.rejection
        }
        rejected = {
            evaluation.host.name: evaluation.rejection
            for evaluation in evaluations
            if evaluation.rejection
        }
        return PlacementDecision(tuple(_rank(passed, request.name, self._policy)), rejected)

    def _evaluate(self, host: Host, request: PlacementRequest) -> _Evaluation:
        evaluation = self._evaluations.get(host.name)
        if evaluation is None or evaluation.host is not host:
            host_request = request.for_host(host)
            rejection = _first(host, host_request, self._policy, filters.ALL)
            scores = {} if rejection else _scores(host, host_request, self._policy)
            evaluation = self._evaluations[host.name] = _Evaluation(host, rejection, scores)
        return evaluation


def admits(
    host: Host,
    request: PlacementRequest,
    policy: PlacementPolicy,
    skip_filters: Collection[str] = (),
    only_filters: Collection[str] | None = None,
) -> Reason | None:
    """(filter, reason) why the host rejects the guest, or None. The guest may already be on the
    host, as for a start or a resize; it is not counted twice."""
    other_guests = tuple(guest for guest in host.guests if guest.name != request.name)
    other_arrivals = tuple(guest for guest in host.arriving if guest.name != request.name)
    host_without = replace(host, guests=other_guests, arriving=other_arrivals)
    return first_reason(host_without, request, policy, skip_filters, only_filters)


def first_reason(
    host: Host,
    request: PlacementRequest,
    policy: PlacementPolicy,
    skip_filters: Collection[str] = (),
    only_filters: Collection[str] | None = None,
) -> Reason | None:
    """(filter, reason) of the first filter that rejects the host, or None.

    skip_filters: names of filters to skip; only_filters: names of the only filters to apply.
    """
    return _first(host, request.for_host(host), policy, _some_filters(skip_filters, only_filters))


def _first(
    host: Host,
    host_request: PlacementRequest,
    policy: PlacementPolicy,
    modules: Iterable[ModuleType],
) -> Reason | None:
    for module in modules:
        reason = module.reason(host, host_request, policy)
        if reason:
            return filters.name_of(module), reason
    return None


def _some_filters(
    skip_filters: Collection[str], only_filters: Collection[str] | None
) -> list[ModuleType]:
    by_name = {filters.name_of(module): module for module in filters.ALL}
    return [
        by_name[name]
        for name in by_name
        if name not in skip_filters and name in (only_filters or by_name)
    ]


def _scores(
    host: Host, host_request: PlacementRequest, policy: PlacementPolicy
) -> dict[str, float]:
    """Weigher to its raw score. host_request: the PlacementRequest for this host."""
    return {
        name: module.score(host, host_request, policy)
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
    candidates = [Candidate(host, sum(shares.values()), shares) for host, shares in parts.items()]
    return sorted(
        candidates, key=lambda c: (-round(c.score / EPSILON), _digest(guest, c.host), c.host)
    )


def _digest(guest: str, host: str) -> bytes:
    return hashlib.sha256(f"{guest}{host}".encode()).digest()


def _scaled(raw: dict[str, float]) -> dict[str, float]:
    low, high = min(raw.values()), max(raw.values())
    if high - low < NOISE:
        return dict.fromkeys(raw, 0.0)
    return {host: (value - low) / (high - low) for host, value in raw.items()}
