import re
from dataclasses import replace

import pytest

from saltvirt.errors import InvalidInput
from saltvirt.placement import choose, policy
from saltvirt.placement.facts import Guest, Host, PlacementRequest
from tests.fakes import inventory as inventories
from tests.unit.placement import NOTHING_BESIDE

GIB_KIB = 1024**2
GIB = 1024**3
PLAIN = policy.from_config(NOTHING_BESIDE)


def host(name, guests=(), **changes):
    base = Host(
        name=name, cpus=8, memory_kib=16 * GIB_KIB, guests=tuple(guests), arch="x86_64",
        types=("kvm", "qemu"), disk_total_bytes=100 * GIB, disk_free_bytes=80 * GIB,
        bridges=frozenset({"br0"}),
    )  # fmt: skip
    return replace(base, **changes)


def request(**changes):
    base = PlacementRequest("web1", vcpus=2, memory_kib=GIB_KIB, bridges=frozenset({"br0"}))
    return replace(base, **changes)


def guest(name, **changes):
    return replace(Guest(name, state="running", vcpus=2, memory_kib=4 * GIB_KIB), **changes)


@pytest.mark.parametrize(
    ("changes", "wanted", "name", "words"),
    [
        ({}, {"only": "hv9"}, "only", "requested on hv9"),
        ({"maintenance": "new disks"}, {}, "maintenance", "new disks"),
        ({"types": ("xen",)}, {}, "hypervisor", "runs xen, not kvm"),
        ({}, {"arch": "aarch64"}, "arch", "runs x86_64, not aarch64"),
        ({}, {"labels": {"rack": "a"}}, "labels", "rack"),
        ({"bridges": frozenset()}, {}, "bridges", "no bridge br0"),
        ({}, {"networks": frozenset({"lan"})}, "networks", "lan"),
        ({}, {"pools": {"ssd": 0}}, "pools", "no storage pool ssd"),
        ({}, {"vcpus": 9}, "vcpu", "9 vCPUs requested, the host has 8"),
        ({"cpus": 2, "guests": (guest("a", vcpus=7),)}, {}, "vcpu", "requested, 1 of 8 free"),
        ({"guests": (guest("a"),)}, {"memory_kib": 13 * GIB_KIB}, "memory", "13312 MiB.*12288 of"),
        ({"disk_promised_bytes": 75 * GIB}, {"disk_bytes": 6 * GIB}, "disk", "6 GiB.*5 GiB free"),
    ],
)
def test_each_filter_says_why(changes, wanted, name, words):
    decision = choose.choose([host("hv1", **changes)], request(**wanted), PLAIN)
    assert not decision.ranked
    fell_at, why = decision.rejected["hv1"]
    assert fell_at == name
    assert re.search(words, why)


def test_exclusion():
    decision = choose.choose(
        [host("hv1"), host("hv2")], request(), replace(PLAIN, exclude=("hv1",))
    )
    assert [c.host for c in decision.ranked] == ["hv2"]
    assert "virt:exclude" in decision.reasons()


def test_kvm_is_what_salt_users_write_for_qemu_too():
    assert choose.choose([host("hv1", types=("qemu",))], request(), PLAIN).ranked


def test_stopped_guests_count_until_the_operator_says_otherwise():
    stopped = [guest(f"g{i}", state="shutdown") for i in range(4)]
    full = host("hv1", stopped)
    assert not choose.choose([full], request(), PLAIN).ranked
    assert choose.choose([full], request(), replace(PLAIN, stopped_ratio=0.5)).ranked
    autostarted = host("hv1", [replace(g, autostart=True) for g in stopped])
    assert not choose.choose([autostarted], request(), replace(PLAIN, stopped_ratio=0.5)).ranked


def test_a_small_empty_host_is_better_than_a_big_full_one():
    big = host("big", [guest("a", memory_kib=40 * GIB_KIB)], memory_kib=64 * GIB_KIB)
    small = host("small", memory_kib=8 * GIB_KIB)
    assert choose.choose([big, small], request(), PLAIN).ranked[0].host == "small"


def test_equal_hosts_are_ranked_by_name_and_the_cached_image_decides():
    hosts = [host("hv2"), host("hv1")]
    assert [c.host for c in choose.choose(hosts, request(), PLAIN).ranked] == ["hv1", "hv2"]
    warm = host("hv2", images=frozenset({"salt://a"}))
    ranked = choose.choose([warm, host("hv1")], request(image="salt://a"), PLAIN).ranked
    assert ranked[0].host == "hv2"
    assert ranked[0].parts["image"] == pytest.approx(0.25)


def test_a_few_bytes_of_free_disk_do_not_decide():
    hosts = [host("hv1", disk_free_bytes=80 * GIB), host("hv2", disk_free_bytes=80 * GIB + 4096)]
    ranked = choose.choose(hosts, request(), PLAIN).ranked
    assert [(c.host, c.score) for c in ranked] == [("hv1", 0), ("hv2", 0)]


def test_groups():
    a, b = host("a", [guest("w1", groups=("web",), memory_kib=0, vcpus=0)]), host("b")
    wanted = request(groups=("web",))
    assert choose.choose([a, b], wanted, PLAIN).ranked[0].host == "b"
    assert (
        choose.choose([a, b], replace(wanted, group_policy="gather"), PLAIN).ranked[0].host == "a"
    )
    apart = choose.choose([a, b], replace(wanted, group_policy="separate"), PLAIN)
    assert apart.rejected["a"] == ("separate", "already has w1 of group web")


def test_a_host_may_have_its_own_ratio():
    full = [guest("a", memory_kib=15.5 * GIB_KIB)]
    assert not choose.choose([host("hv1", full)], request(), PLAIN).ranked
    assert choose.choose([host("hv1", full, ratios={"memory": 1.5})], request(), PLAIN).ranked


def test_inventory_to_facts():
    found = inventories.host(
        "hv1",
        {
            "cpus": 2, "memory_kib": 1024, "types": ["qemu"], "bridges": ["br0"],
            "guests": {"a": {"state": "running", "vcpus": 1, "memory_kib": 512}},
            "images_folder": {"total_bytes": 10, "free_bytes": 5, "promised_bytes": 1},
        },
    )  # fmt: skip
    assert found.guests[0].meant_to_run
    assert (found.disk_free_bytes, found.bridges) == (5, {"br0"})


def test_policy_from_config():
    found = policy.from_config({"cpu_ratio": 8, "weights": {"disk": 0}}, ["hv1"])
    assert (found.cpu_ratio, found.weights["disk"], found.exclude) == (8, 0, ("hv1",))
    assert found.weights["memory"] == 1.0


@pytest.mark.parametrize(
    "bad", [{"cpu": 1}, {"cpu_ratio": "x"}, {"weights": {"luck": 1}}, {"cpu_ratio": -1}]
)
def test_policy_refuses(bad):
    with pytest.raises(InvalidInput, match="virt:placement"):
        policy.from_config(bad)


def test_five_hosts_of_one_reason_are_named_and_of_more_the_number():
    full = {f"hv{n}": ("memory", "no room") for n in range(5)}
    assert choose.PlacementDecision((), full).reasons() == "hv0, hv1, hv2, hv3, hv4: no room"
    full["hv5"] = ("memory", "no room")
    assert (
        choose.PlacementDecision((), full).reasons()
        == "hv0, hv1, hv2, hv3, hv4 and 1 more: no room"
    )


def test_a_guest_that_is_there_or_on_its_way_does_not_stand_in_its_own_way():
    mine, other = guest("web1", memory_kib=10 * GIB_KIB), guest("b", memory_kib=10 * GIB_KIB)
    larger = request(memory_kib=14 * GIB_KIB)
    assert choose.admits(host("hv1", [mine]), larger, PLAIN) is None
    assert choose.admits(host("hv1", arriving=(mine,)), larger, PLAIN) is None
    assert choose.admits(host("hv1", [other]), larger, PLAIN)[0] == "memory"
    assert choose.admits(host("hv1", arriving=(other,)), larger, PLAIN)[0] == "memory"


def test_who_asks_leaves_filters_out_or_names_those_that_count():
    closed, large = host("hv1", maintenance="disks"), request(memory_kib=99 * GIB_KIB)

    def fell(**asked):
        found = choose.first_reason(closed, large, PLAIN, **asked)
        return found and found[0]

    assert fell() == "maintenance"
    assert fell(skip_filters=("maintenance",)) == "memory"
    assert fell(skip_filters=("maintenance", "memory")) is None
    assert fell(only_filters=("memory",)) == "memory"
    assert fell(only_filters=("vcpu",)) is None
    assert fell(skip_filters=("memory",), only_filters=("memory", "maintenance")) == "maintenance"


def test_a_weight_that_is_not_set_counts_for_nothing():
    by = replace(PLAIN, weights={"memory": 1.0})
    hosts = [host("hv1"), host("hv2", [guest("a")], images=frozenset({"salt://a"}))]
    ranked = choose.choose(hosts, request(image="salt://a"), by).ranked
    assert [c.host for c in ranked] == ["hv1", "hv2"]
    assert [set(c.parts) for c in ranked] == [{"memory"}, {"memory"}]


def test_a_difference_is_stretched_to_the_whole_and_a_smaller_one_than_noise_is_none():
    """Disks that are half, a quarter and not at all full."""
    by = replace(PLAIN, weights={"disk": 3.0})
    hosts = [host(f"hv{n}", disk_free_bytes=free * GIB) for n, free in enumerate((50, 75, 100))]
    parts = {c.host: c.parts["disk"] for c in choose.choose(hosts, request(), by).ranked}
    assert parts == {"hv0": 0.0, "hv1": 1.5, "hv2": 3.0}
    assert choose._scaled({"a": 0.0, "b": choose.NOISE}) == {"a": 0.0, "b": 1.0}
    assert choose._scaled({"a": 0.0, "b": choose.NOISE * 0.9}) == {"a": 0.0, "b": 0.0}


def test_equal_hosts_are_not_filled_from_the_first_on():
    hosts = [host(f"hv{n}") for n in range(4)]
    firsts = {
        choose.choose(hosts, replace(request(), name=f"web{n}"), PLAIN).ranked[0].host
        for n in range(40)
    }
    assert firsts == {"hv0", "hv1", "hv2", "hv3"}


def test_of_guests_that_are_alike_only_hosts_are_looked_at_again_that_changed(monkeypatch):
    """And none is weighed that falls."""
    looked, weighed, first, scores = [], [], choose._first, choose._scores
    monkeypatch.setattr(
        choose, "_first", lambda host, *more: looked.append(host.name) or first(host, *more)
    )
    monkeypatch.setattr(
        choose, "_scores", lambda host, *more: weighed.append(host.name) or scores(host, *more)
    )
    hosts = [host("a"), host("b"), host("full", guests=[guest("x", memory_kib=16 * GIB_KIB)])]
    choices = choose.HostSelector(PLAIN)

    def chosen(**wanted):
        looked.clear()
        weighed.clear()
        found = choices.choose(hosts, request(**wanted))
        seen = [*looked], [*weighed]
        assert found == choose.choose(hosts, request(**wanted), PLAIN)
        return seen

    assert chosen() == (["a", "b", "full"], ["a", "b"])
    assert chosen(name="web2") == ([], [])
    hosts[1] = replace(hosts[1], guests=(guest("web2"),))
    assert chosen(name="web3") == (["b"], ["b"])
    assert chosen(memory_kib=2 * GIB_KIB) == (["a", "b", "full"], ["a", "b"])
    assert chosen(name="web2", memory_kib=2 * GIB_KIB) == ([], [])
