"""Many guests at once: how often hosts are asked, and what is found all the same. What counts as a
job is said in tests/counted.py."""

import random
from dataclasses import replace

import pytest

pytest.importorskip("salt")

from saltvirt.operations import deploy, picture
from saltvirt.placement import choose, facts, policy
from tests.counted import Cloud

POLICY = policy.from_config(None, None)


def wishes(count, **more):
    asked = {"mem": 2048, "cpu": 2, "seed": False, **more}
    return [deploy.wanted(f"web{number:03}", asked, "shop") for number in range(count)]


# -- the choice ---------------------------------------------------------------------------


def test_a_host_that_did_not_change_is_found_as_if_it_were_looked_at_again():
    """Choices remembers what it found of hosts: it must not show."""
    dice = random.Random(7)
    hosts = {
        f"hv{n}": facts.Host(
            f"hv{n}", cpus=dice.choice((4, 8)), memory_kib=dice.choice((8, 16)) << 20,
            types=("kvm",), disk_total_bytes=1 << 40, disk_free_bytes=1 << 40,
        )
        for n in range(6)
    }  # fmt: skip
    remembers = choose.Choices(POLICY)
    for number in range(120):
        groups = dice.choice(((), (), ("web",)))
        request = facts.PlacementRequest(
            f"g{number}", 1, dice.choice((1, 2)) << 20, groups=groups, group_policy="separate"
        )
        found = remembers.choose(hosts.values(), request)
        assert found == choose.choose(hosts.values(), request, POLICY)
        if found.ranked and dice.random() < 0.8:
            best = found.ranked[0].host
            guest = facts.Guest(request.name, "", "running", 1, request.memory_kib, groups=groups)
            hosts[best] = replace(hosts[best], guests=(*hosts[best].guests, guest))
        if dice.random() < 0.1:
            gone = dice.choice(sorted(hosts))
            hosts[gone] = replace(hosts[gone], guests=())


# -- the plan -----------------------------------------------------------------------------


def test_a_plan_asks_all_hosts_twice_however_many_guests_it_is_for(tmp_path):
    """Once what they have, and once what a guest of that kind would take."""
    cloud = Cloud(tmp_path, hosts=20)
    found = deploy.plan(cloud, POLICY, wishes(200), "shop")
    assert len(found.placed) == 200
    assert (cloud.jobs, cloud.minions) == ({"virt.inventory": 2}, {"virt.inventory": 40})


def test_guests_that_differ_in_their_addresses_and_groups_are_of_one_kind(tmp_path):
    cloud = Cloud(tmp_path, hosts=3)
    guests = [
        deploy.wanted(
            f"web{n}",
            {"mem": 64, "seed": False, "groups": [f"g{n}"],
             "interfaces": [{"name": "eth0", "mac": f"52:54:00:00:00:{n:02}"}]},
            "shop",
        )
        for n in range(9)
    ]  # fmt: skip
    assert len(deploy.plan(cloud, POLICY, guests, "shop").placed) == 9
    assert cloud.jobs == {"virt.inventory": 2}
    kinds = {picture.kind_of(one) for one in (*guests, *wishes(1, nic="other"), *wishes(1))}
    assert len(kinds) == 3


def test_the_files_of_a_silent_libvirt_are_read_once_for_all_names(tmp_path):
    cloud = Cloud(tmp_path, hosts=5, dead=["hv001", "hv002"])
    found = deploy.plan(cloud, POLICY, wishes(30), "shop")
    assert len(found.failed) == 30  # they may be there, and the master knows no better
    assert cloud.jobs == {"virt.inventory": 1, "virt.names_on_disk": 1}
    sure = deploy.plan(cloud, POLICY, wishes(30, name_is_free=True), "shop")
    assert len(sure.placed) == 30
    assert not {"hv001", "hv002"} & set(sure.placed.values())


def test_a_host_that_refused_is_asked_again_and_no_other(tmp_path):
    cloud = Cloud(tmp_path, hosts=3)
    seen = picture.Picture(cloud, POLICY)
    guests = wishes(6)
    where = {w.name: seen.place(cloud, w, w.request()).ranked[0].host for w in guests}
    full = where["web000"]
    theirs = {f"other{n}": {"vcpus": 1, "memory_kib": 1 << 20, "state": "running"} for n in (1, 2)}
    cloud.guests[full].update(theirs)
    made = [name for name, host in where.items() if host == full][1]
    cloud.guests[full][made] = {"vcpus": 2, "memory_kib": 2 << 20, "state": "running"}
    cloud.published.clear()
    seen.refused(cloud, "web000", full)
    again = seen.place(cloud, guests[0], guests[0].request(), [full]).ranked[0].host
    assert again != full == where[made]
    assert cloud.published == [("virt.inventory", [full])]
    [host] = [host for host in seen.hosts if host.name == full]
    come = sorted(name for name, host in where.items() if host == full and name != "web000")
    assert sorted(guest.name for guest in host.guests) == sorted([*theirs, *come])
    assert [seen.host_of(name) for name in ("web000", made)] == [again, full]


def test_a_host_that_died_meanwhile_gets_nothing_more(tmp_path):
    cloud = Cloud(tmp_path, hosts=2)
    seen = picture.Picture(cloud, POLICY)
    [one] = wishes(1)
    first = seen.place(cloud, one, one.request()).ranked[0].host
    cloud.dead.add(first)
    seen.refused(cloud, one.name, first)
    assert first in seen.unreachable
    assert [host.name for host in seen.hosts] == [name for name in cloud.names if name != first]
    assert seen.place(cloud, one, one.request()).ranked[0].host != first
    cloud.dead.clear()
    assert seen.host_of("nobody") is None
