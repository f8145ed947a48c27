"""Decisions about recorded clouds: tests/golden/clusters, each with the decision beside it.

A file has the hosts' answers to ``virt.inventory``, a policy and a request; the recorded decision
is in decisions/ under the same name (SALTVIRT_REGENERATE=1 records).
"""

import json
from dataclasses import replace

import pytest

from saltvirt.placement import choose, facts, filters, policy, weights
from tests import golden
from tests.fakes import inventory as inventories

HOME = golden.HOME / "clusters"
NAMES = sorted(path.stem for path in HOME.glob("*.json"))


def load(name):
    """(hosts, request, policy) of a recorded cloud."""
    data = json.loads((HOME / f"{name}.json").read_text(encoding="utf-8"))
    wanted = dict(data.get("policy") or {})
    exclude = wanted.pop("exclude", ())
    hosts = [inventories.host(*item) for item in data["hosts"].items()]
    return hosts, facts.PlacementRequest(**data["request"]), policy.from_config(wanted, exclude)


def shown(decision):
    """The decision as it is recorded."""
    ranked = [
        {"host": c.host, "score": round(c.score, 3),
         "parts": {name: round(share, 3) for name, share in c.parts.items()}}
        for c in decision.ranked
    ]  # fmt: skip
    rejected = {host: ": ".join(why) for host, why in sorted(decision.rejected.items())}
    found = {"ranked": ranked, "rejected": rejected, "reasons": decision.reasons()}
    return json.dumps(found, indent=1) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_the_decision_is_the_recorded_one(name):
    golden.same(f"clusters/decisions/{name}.json", shown(choose.choose(*load(name))))


def test_the_order_of_the_hosts_does_not_matter():
    for name in NAMES:
        hosts, *rest = load(name)
        assert shown(choose.choose(hosts[::-1], *rest)) == shown(choose.choose(hosts, *rest))


def test_every_filter_and_weigher_decides_somewhere():
    """A filter that nothing falls at, or a weigher that gives nothing, is not tested."""
    fell, weighed = set(), set()
    for name in NAMES:
        hosts, request, wanted = load(name)
        decision = choose.choose(hosts, request, wanted)
        fell |= {filter_name for filter_name, _ in decision.rejected.values()}
        weighed |= {part for c in decision.ranked for part, share in c.parts.items() if share}
    known = {filters.name_of(module) for module in filters.ALL}
    assert fell == known - {"only"}
    assert weighed == set(weights.ALL)


def test_who_is_first_takes_the_guest_until_it_is_full():
    """Placed one after the other, guests never overfill a host, and as many fit as are counted."""
    from saltvirt.placement import capacity

    hosts, request, wanted = load("big-and-small")
    cloud = {host.name: host for host in hosts}
    fits = capacity.capacity(hosts, request, wanted).total
    for number in range(fits):
        best = choose.choose(cloud.values(), request, wanted).ranked[0].host
        new = facts.Guest(f"n{number}", "", "running", request.vcpus, request.memory_kib)
        cloud[best] = replace(cloud[best], guests=(*cloud[best].guests, new))
    assert not choose.choose(cloud.values(), request, wanted).ranked
    assert all(host.free_memory_kib(wanted) >= 0 for host in cloud.values())
