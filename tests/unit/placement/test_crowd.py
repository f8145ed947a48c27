"""Random clouds, requests in any order: nothing is promised twice, and the host agrees with the
master. Each seed can be run by itself."""

import json
import random
from dataclasses import replace

import pytest

from saltvirt.placement import account, choose, facts, policy
from tests.fakes import inventory as inventories

GIB_KIB = 1024**2
GIB = 1024**3
ROUNDS = 10_000
CLOUDS = 25  # of ROUNDS: each request and each look at a host is one


def a_guest(rng, hosts):
    size = rng.choice((1, 2, 4, 8, 16)) * GIB_KIB
    found = {
        "state": rng.choice(("running", "paused", "shutdown")), "vcpus": rng.randint(1, 8),
        "memory_kib": size, "autostart": rng.random() < 0.2, "type": rng.choice(("kvm", "lxc")),
        "groups": rng.sample(["web", "db"], rng.randint(0, 2)),
    }  # fmt: skip
    if rng.random() < 0.2:
        found["max_memory_kib"] = size * 2
    if rng.random() < 0.2:
        found["page_kib"] = rng.choice((0, 2048))
    if rng.random() < 0.1:
        found["creating"] = True
    return found


def inventory(rng, name):
    """A host's answer to virt.inventory."""
    memory = rng.choice((32, 64, 256)) * GIB_KIB
    nfs = {"total_bytes": 500 * GIB, "free_bytes": 400 * GIB, "promised_bytes":
           rng.randint(0, 30) * GIB, "shared": "nfs nas:/vm"}  # fmt: skip
    disk = {"total_bytes": 900 * GIB, "free_bytes": rng.randint(250, 900) * GIB,
            "promised_bytes": rng.randint(0, 200) * GIB}  # fmt: skip
    found = {
        "cpus": rng.choice((8, 16, 64)), "memory_kib": memory, "types": ["kvm", "qemu", "lxc"],
        "stores": {"/": disk, "/nfs": nfs}, "mounts": {"/": "/", "/nfs": "/nfs"},
        "images_folder": {**disk, "store": "/"}, "bridges": ["br0"],
        "pools": {"nfs": {**nfs, "store": "/nfs"}}, "guests": {},
        "labels": {"rack": rng.choice("ab")},
    }  # fmt: skip
    if rng.random() < 0.3:
        found["hugepages"] = {"2048": memory // 4}
    if rng.random() < 0.3:
        found["placement"] = {"memory_ratio": rng.choice((0.5, 1, 3)), "stopped_ratio": 0.5}
    if rng.random() < 0.3:
        found["ratios"] = {"cpu": rng.choice((1, 2, 16))}
    return found


def request(rng, number):
    one = a_guest(rng, ())
    return facts.PlacementRequest(
        f"new{number}", one["vcpus"], one["memory_kib"], hypervisor=one["type"],
        max_memory_kib=one.get("max_memory_kib", 0), page_kib=one.get("page_kib"),
        disk_bytes=rng.choice((0, 10, 40)) * GIB, bridges=frozenset({"br0"}),
        pools=rng.choice(({}, {"nfs": rng.randint(1, 60) * GIB})),
        groups=tuple(one["groups"]), group_policy=rng.choice(("spread", "separate", "gather")),
        labels=rng.choice(({}, {"rack": "a"})),
    )  # fmt: skip


def some_policy(rng):
    return policy.from_config(
        {
            "memory_ratio": rng.choice((1, 1.5, 2)), "cpu_ratio": rng.choice((1, 4)),
            "stopped_ratio": rng.choice((0, 0.5, 1)), "disk_ratio": rng.choice((1, 1.2)),
        }
    )  # fmt: skip


class Cloud:
    """The hosts as they are; whoever asks gets what virt.inventory would tell."""

    def __init__(self, rng, hosts):
        self.answers = {f"hv{n}": inventory(rng, f"hv{n}") for n in range(hosts)}
        self.reported = {}

    def host(self, name):
        """The Host that a host reports; nothing of it changes but by ``make``."""
        if name not in self.reported:
            self.reported[name] = inventories.host(name, self.answers[name])
        return self.reported[name]

    def look(self):
        return account.joined([self.host(name) for name in self.answers])

    def admits(self, name, asked, terms):
        """The host's own admission: what it has now, and what the master sent."""
        sent = json.loads(json.dumps(terms.to_answer()))
        sent = account.PlacementTerms.from_answer(sent, "placement")
        there = account.with_reserved(self.host(name), sent.elsewhere)
        return choose.admits(there, asked, policy.from_config(sent.policy))

    def make(self, name, asked):
        """The guest and its thin disks are there."""
        data = self.answers[name]
        host = self.host(name)
        del self.reported[name]
        for store, size in account.storage(asked, host).items():
            for place in (data["stores"][store], data["pools"]["nfs"], data["images_folder"]):
                if place is data["stores"][store] or place.get("store") == store:
                    place["promised_bytes"] += size
        data["guests"][asked.name] = {
            "state": "running", "vcpus": asked.vcpus, "memory_kib": asked.memory_kib,
            "max_memory_kib": asked.max_memory_kib, "page_kib": asked.page_kib,
            "type": asked.type, "groups": list(asked.groups),
        }  # fmt: skip


def never_over(cloud, by):
    for host in cloud.look():
        assert host.free_memory_kib(by) >= 0
        assert host.free_vcpus(by) >= 0
        assert all(host.free_store_bytes(by, store) >= 0 for store in host.storage)
        assert all(host.free_hugepages_kib(by, size) >= 0 for size in host.hugepages)


@pytest.mark.parametrize("seed", range(CLOUDS))
def test_the_host_decides_as_the_master_does_and_nothing_is_given_twice(seed):
    rng = random.Random(seed)
    by, cloud = some_policy(rng), Cloud(rng, rng.randint(2, 8))
    looks = 0
    while looks < ROUNDS // CLOUDS:
        asked = request(rng, looks)
        hosts = cloud.look()
        decision = choose.choose(hosts, asked, by)
        for host in hosts:
            fell = cloud.admits(host.name, asked, account.terms(host, by))
            assert fell == decision.rejected.get(host.name), (seed, looks)
            looks += 1
        if decision.ranked:
            cloud.make(decision.ranked[0].host, asked)
        never_over(cloud, by)


@pytest.mark.parametrize("seed", range(10))
def test_who_looked_before_others_were_placed_is_refused_and_not_squeezed_in(seed):
    """Operators who all look first and ask then, in any order."""
    rng = random.Random(seed)
    by, cloud = some_policy(rng), Cloud(rng, 4)
    for answer in cloud.answers.values():  # what several hosts share is the master's to lock
        del answer["stores"]["/nfs"]["shared"], answer["pools"]["nfs"]["shared"]
    crowd = []
    for number in range(60):
        asked, hosts = request(rng, number), cloud.look()
        terms = {host.name: account.terms(host, by) for host in hosts}
        crowd.append((asked, choose.choose(hosts, asked, by).ranked, terms))
    rng.shuffle(crowd)
    for asked, ranked, terms in crowd:
        for candidate in ranked:
            if cloud.admits(candidate.host, asked, terms[candidate.host]) is None:
                cloud.make(candidate.host, asked)
                break
        never_over(cloud, by)


def crowd(guests, hosts, memory_gib, attempts=None):
    """How many of a crowd that looked at the same empty cloud are placed."""
    by = policy.PlacementPolicy()
    empty = {
        "cpus": 16, "memory_kib": 64 * GIB_KIB, "types": ["kvm"],
        "images_folder": {"total_bytes": 2**40, "free_bytes": 2**40}, "guests": {},
    }  # fmt: skip
    seen = [inventories.host(f"hyper{n:03}", empty) for n in range(hosts)]
    now, placed, tried = {host.name: host for host in seen}, 0, []
    for number in range(guests):
        asked = facts.PlacementRequest(f"guest{number:03}", 2, memory_gib * GIB_KIB)
        for turn, candidate in enumerate(choose.choose(seen, asked, by).ranked):
            if attempts and turn == attempts:
                break
            if choose.admits(now[candidate.host], asked, by) is None:
                new = facts.Guest(asked.name, "", "running", 2, asked.memory_kib)
                now = account.after_placement(now, candidate.host, asked, new)
                placed += 1
                tried.append(turn)
                break
    return placed, tried


def test_a_crowd_does_not_ask_for_the_same_host():
    """D16: eight 40 GiB guests at once on 200 empty 64 GiB hosts; three were placed."""
    placed, tried = crowd(8, 200, 40)
    assert placed == 8
    assert max(tried) <= 2
    assert crowd(8, 200, 40, attempts=3)[0] == 8, "even with few attempts"


def test_a_crowd_that_just_fits_is_placed_whole():
    placed, tried = crowd(60, 60, 40)
    assert placed == 60
    assert sum(tried) / len(tried) < 10
    assert crowd(61, 60, 40)[0] == 60


def test_the_ranking_is_the_same_each_time_and_another_for_another_guest():
    hosts = [inventories.host(f"hv{n}", {"cpus": 4, "memory_kib": 8 * GIB_KIB,
             "types": ["kvm"]}) for n in range(6)]  # fmt: skip
    by = policy.PlacementPolicy()

    def ranked(name):
        found = choose.choose(hosts, facts.PlacementRequest(name, 1, GIB_KIB), by).ranked
        return [candidate.host for candidate in found]

    assert ranked("web1") == ranked("web1")
    assert len({tuple(ranked(f"web{n}")) for n in range(20)}) > 15
    best = replace(hosts[3], labels={"disk": "ssd"})
    liked = facts.PlacementRequest("web1", 1, GIB_KIB, prefer={"disk": "ssd"})
    assert choose.choose([*hosts[:3], best], liked, by).ranked[0].host == "hv3"
