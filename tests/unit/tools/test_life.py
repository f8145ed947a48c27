"""The plan of ``make life`` covers what it promises, and its checks notice faults."""

import itertools

import pytest

from tests.life import check, plan
from tests.life.model import COMBINATIONS, Guest
from tests.life.verbs import VERBS


def test_the_tour_has_every_ordered_pair_once():
    path = plan.tour("abcd")
    steps = list(itertools.pairwise(path))
    assert sorted(steps) == sorted((a, b) for a in "abcd" for b in "abcd")


def test_every_pair_is_tested_on_two_combinations():
    tested = plan.pairs(plan.walks(VERBS))
    assert len(tested) == len(VERBS) ** 2
    assert min(map(len, tested.values())) >= 2


def test_every_verb_is_tested_on_every_combination():
    done = {combination: set() for combination in COMBINATIONS}
    for combination, steps in plan.walks(VERBS):
        done[combination].update(steps)
    assert all(verbs == set(VERBS) for verbs in done.values())


def test_triples_depend_on_the_seed_alone():
    names = list(VERBS)
    assert plan.triples(names, 7, 5) == plan.triples(names, 7, 5) != plan.triples(names, 8, 5)


GUEST = Guest("g", "overlay", "bios", "pc", "hv1", records={"system": [1, 2]})
DOMAIN = {"state": "running", "uuid": "u", "macs": ["m"], "files": ["/srv/g"]}
ANSWER = {
    "uuid": "U", "nics": {"m": "10.0.0.1"}, "firmware": "bios", "cpus": "1", "memory_kib": "94000",
    "disks": {"vda": {"sectors": 64 * 2048, "records": ["1", "2"]}},
}  # fmt: skip


def test_a_guest_as_it_must_be_has_no_fault():
    assert check.answers(GUEST, DOMAIN, ANSWER) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"silent": ["m"]},
        {"uuid": "other"},
        {"nics": {"m": "10.0.0.1", "n": "10.0.0.2"}},
        {"firmware": "uefi"},
        {"cpus": "2"},
        {"memory_kib": "50000"},
        {"disks": {"vda": {"sectors": 64 * 2048, "records": ["1"]}}},
        {"disks": {"vda": {"sectors": 65 * 2048, "records": ["1", "2"]}}},
        {"disks": {}},
    ],
)
def test_each_difference_of_the_guest_is_a_fault(changes):
    assert check.answers(GUEST, DOMAIN, {**ANSWER, **changes})


def host(**changes):
    """What a hypervisor has, with the guest on it."""
    return {"domains": {"g": DOMAIN}, "tools": [], "emulators": ["g"], "files": ["/srv/g"],
            "mounts": ["/"], "loops": [], "changed": [], "firmware": ["/f"], **changes}  # fmt: skip


EMPTY = host(domains={}, emulators=[], files=[])


def test_hosts_as_they_must_be_have_no_fault():
    seen = {"hv1": host(), "hv2": EMPTY}
    assert check.hosts(seen, GUEST) + check.same_system(seen, seen) == []


@pytest.mark.parametrize(
    "seen",
    [
        {"hv1": EMPTY, "hv2": host()},
        {"hv1": host(), "hv2": host()},
        {"hv1": host(tools=["guestfish"]), "hv2": EMPTY},
        {"hv1": host(emulators=[]), "hv2": EMPTY},
        {"hv1": host(changed=["/usr/bin/x"]), "hv2": EMPTY},
        {"hv1": host(loops=["/dev/loop0 /srv/x"]), "hv2": EMPTY},
        {"hv1": host(files=["/srv/g", "/srv/old"]), "hv2": EMPTY},
        {"hv1": host(files=[]), "hv2": EMPTY},
        {"hv1": host(domains={"g": {**DOMAIN, "macs": ["m", "m"]}}), "hv2": EMPTY},
    ],
)
def test_each_fault_of_the_hosts_is_noticed(seen):
    assert check.hosts(seen, GUEST)


@pytest.mark.parametrize("key", ["firmware", "mounts"])
@pytest.mark.parametrize("listed", [[], ["/", "/f", "/new"]])
def test_a_host_whose_system_changed_is_noticed(key, listed):
    assert check.same_system({"hv1": host(**{key: listed})}, {"hv1": host()})


@pytest.mark.parametrize("answer", [{}, {"changes": [{"path": "x"}]}, {"changes": {"x": 1}}])
def test_a_repeated_request_that_changes_something_is_noticed(answer):
    assert check.unchanged("virt.update", answer)
    assert not check.unchanged("virt.update", {"changes": []})
