"""Filters, then weights: the ranking, and for each host that fell the reason."""

from dataclasses import dataclass, field

from saltvirt.placement import filters, weights

# scores that differ by less are equal: the name decides, so that the answer is stable
EPSILON = 1e-9
# in a message, so many hosts of one reason are named
NAMED = 5
# raw scores that differ by less are the same: scaling to 0…1 would blow the noise of two
# disks' free space up to a full difference
NOISE = 0.01


@dataclass(frozen=True)
class Candidate:
    """A host that passed. parts: weigher to its share of the score."""

    host: str
    score: float
    parts: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """ranked: Candidates, best first. rejected: host to (filter, reason)."""

    ranked: tuple
    rejected: dict

    def reasons(self):
        """One clause per reason, for a message: each with the hosts that it rejects."""
        hosts = {}
        for host, (_, why) in sorted(self.rejected.items()):
            hosts.setdefault(why, []).append(host)
        return "; ".join(f"{_some(found)}: {why}" for why, found in hosts.items())


def _some(hosts):
    shown = ", ".join(hosts[:NAMED])
    return f"{shown} and {len(hosts) - NAMED} more" if len(hosts) > NAMED else shown


def choose(hosts, request, policy):
    """Decides where the guest of the request may go.

    hosts: iterable of facts.Host. Returns a Decision; no host left is an empty ranking.
    """
    passed, rejected = [], {}
    for host in hosts:
        fell = first_reason(host, request, policy)
        if fell:
            rejected[host.name] = fell
        else:
            passed.append(host)
    return Decision(tuple(_rank(passed, request, policy)), rejected)


def first_reason(host, request, policy):
    """(filter, reason) of the first filter that the host falls at, or None."""
    asked = request.at(host)
    for module in filters.ALL:
        why = module.reason(host, asked, policy)
        if why:
            return filters.name_of(module), why
    return None


def _rank(hosts, request, policy):
    parts = {host.name: {} for host in hosts}
    for name, module in weights.ALL.items():
        multiplier = policy.weights.get(name, 0)
        if not multiplier or not hosts:
            continue
        raw = {host.name: module.score(host, request.at(host), policy) for host in hosts}
        for host, value in _scaled(raw).items():
            parts[host][name] = multiplier * value
    found = [Candidate(host, sum(shares.values()), shares) for host, shares in parts.items()]
    return sorted(found, key=lambda c: (-round(c.score / EPSILON), c.host))


def _scaled(raw):
    low, high = min(raw.values()), max(raw.values())
    if high - low < NOISE:
        return dict.fromkeys(raw, 0.0)
    return {host: (value - low) / (high - low) for host, value in raw.items()}
