"""What a guest takes of a host: memory, huge pages, vCPUs and storage, with each setting."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from saltvirt.errors import InvalidInput
from saltvirt.fleet.answer import Answer
from saltvirt.operations.cluster import inventory
from saltvirt.placement import account, capacity, choose, facts, policy, resources
from saltvirt.placement.facts import (
    DiskFootprint,
    Guest,
    Host,
    PlacementRequest,
    StoragePool,
    StorageSpace,
)
from tests.fakes import inventory as inventories
from tests.unit.placement import NOTHING_BESIDE

GIB_KIB = 1024**2
GIB = 1024**3
PLAIN = policy.from_config(NOTHING_BESIDE)


def host(name="hv1", guests=(), **changes):
    base = Host(
        name=name, cpus=16, memory_kib=64 * GIB_KIB, guests=tuple(guests), types=("kvm", "qemu"),
        disk_total_bytes=100 * GIB, disk_free_bytes=100 * GIB,
    )  # fmt: skip
    return replace(base, **changes)


def guest(name="g", memory_gib=8, state="running", **more):
    return Guest(name, "", state, 2, memory_gib * GIB_KIB, **more)


def why(there, request, by=PLAIN):
    return choose.first_reason(there, request, by)


def test_a_guest_that_is_being_made_counts_in_full():
    """D15: at stopped_ratio 0 any number of them passed."""
    free = replace(PLAIN, stopped_ratio=0.0)
    made = [guest(f"g{i}", state="shutdown", creating=True) for i in range(8)]
    assert why(host(guests=made), PlacementRequest("new", 1, GIB_KIB), free)[0] == "memory"
    stopped = [guest(f"g{i}", state="shutdown") for i in range(8)]
    assert why(host(guests=stopped), PlacementRequest("new", 1, GIB_KIB), free) is None


def test_what_a_guest_may_be_given_while_it_runs_is_promised():
    assert (
        why(host(), PlacementRequest("new", 1, GIB_KIB, max_memory_kib=65 * GIB_KIB))[0] == "memory"
    )
    growing = guest(max_memory_kib=60 * GIB_KIB)
    assert why(host(guests=[growing]), PlacementRequest("new", 1, 5 * GIB_KIB))[0] == "memory"
    assert why(host(guests=[growing]), PlacementRequest("new", 1, 4 * GIB_KIB)) is None


def test_qemu_takes_memory_beside_each_guest():
    found = policy.PlacementPolicy(reserved_memory_kib=0, reserved_memory_ratio=0)
    many = [guest(f"g{i}", memory_gib=1) for i in range(8)]
    beside = host(guests=many).used(found, "memory_kib") - 8 * GIB_KIB
    assert beside == 8 * (62 * 1024 + 2 * 8 * 1024 + GIB_KIB / 512)
    exact = PlacementRequest("new", 1, 64 * GIB_KIB)
    assert why(host(), exact) is None
    fell = why(host(), exact, found)
    assert fell[1].startswith("65536 MiB of memory requested and 198 for QEMU, 65536 of 65536")
    container = [guest("c", type="lxc", memory_gib=1)]
    assert host(guests=container).used(found, "memory_kib") == GIB_KIB


@pytest.mark.parametrize(
    ("memory_gib", "reserve_mib"), [(4, 512), (24, 1229), (64, 3277), (512, 8192), (4096, 8192)]
)
def test_what_the_host_keeps_for_itself_grows_with_it(memory_gib, reserve_mib):
    found = policy.PlacementPolicy().reserve_kib(memory_gib * GIB_KIB)
    assert round(found / 1024) == reserve_mib
    more = policy.from_config({"reserved_memory_kib": 16 * GIB_KIB})
    assert more.reserve_kib(memory_gib * GIB_KIB) == 16 * GIB_KIB


def test_huge_pages_are_memory_of_their_own():
    there = host(hugepages={2048: 32 * GIB_KIB}, page_kib=2048)
    assert there.capacity_memory_kib(PLAIN) == 32 * GIB_KIB
    assert why(there, PlacementRequest("new", 1, 32 * GIB_KIB, page_kib=0)) is None
    fell = why(there, PlacementRequest("new", 1, 33 * GIB_KIB, page_kib=2048))
    assert fell[1].startswith(
        "33792 MiB of huge pages of 2048 KiB requested, 32768 of 32768 MiB free"
    )
    taken = replace(there, guests=(guest(memory_gib=30, page_kib=0),))
    assert why(taken, PlacementRequest("new", 1, 4 * GIB_KIB, page_kib=2048))[0] == "memory"
    assert why(taken, PlacementRequest("new", 1, 32 * GIB_KIB)) is None
    assert why(there, PlacementRequest("new", 1, 1, page_kib=1048576))[1] == (
        "has no huge pages of 1048576 KiB"
    )
    assert why(host(), PlacementRequest("new", 1, 1, page_kib=0))[1] == "has no huge pages"


def test_a_disk_is_charged_to_the_file_system_that_it_is_on():
    there = host(
        stores={"/": StorageSpace(100 * GIB, 10 * GIB), "/data": StorageSpace(100 * GIB, 50 * GIB)},
        mounts={"/": "/", "/data": "/data"}, images_store="/",
        pools={"data": StoragePool(100 * GIB, 50 * GIB, store="/data")},
    )  # fmt: skip
    in_data = PlacementRequest("new", 1, 1, disks=(DiskFootprint(20 * GIB, "/data/vm/new.qcow2"),))
    assert why(there, in_data) is None
    assert why(there, PlacementRequest("new", 1, 1, disk_bytes=20 * GIB))[0] == "disk"
    fell = why(there, replace(in_data, pools={"data": 31 * GIB}))
    assert fell == ("disk", "51 GiB of disk space requested on /data, 50 GiB free")
    assert why(there, PlacementRequest("new", 1, 1, pools={"data": 51 * GIB}))[0] == "pools"
    assert there.folder_store("/database/x") == "/"


def test_a_disk_of_which_no_place_is_told_is_where_images_are():
    there = host(stores={"/": StorageSpace(GIB, GIB), "/srv": StorageSpace(GIB, GIB)},
                 mounts={"/": "/", "/srv": "/srv"}, images_store="/srv")  # fmt: skip
    assert account.store_of(DiskFootprint(GIB), there) == "/srv"
    assert account.store_of(DiskFootprint(GIB, "/x"), there) == "/"
    fell = why(there, PlacementRequest("new", 1, 1, disks=(DiskFootprint(9 * GIB),)))
    assert fell == ("disk", "9 GiB of disk space requested, 1 GiB free")


def shared(name, promised, free=100):
    pool = StoragePool(200 * GIB, free * GIB, promised * GIB, "nfs nas:/vm", store="/nfs")
    store = StorageSpace(200 * GIB, free * GIB, promised * GIB, "nfs nas:/vm")
    return host(name, pools={"nfs": pool}, stores={"/nfs": store}, mounts={"/nfs": "/nfs"})


def test_a_shared_pool_is_promised_once_for_all_its_hosts():
    hosts = account.joined([shared("hv1", 30), shared("hv2", 40)])
    wants = PlacementRequest("new", 1, GIB_KIB, pools={"nfs": 31 * GIB})
    assert why(hosts[0], wants)[1] == "31 GiB requested of pool nfs, 30 GiB free"
    assert why(hosts[1], replace(wants, pools={"nfs": 30 * GIB})) is None
    found = capacity.capacity(hosts, replace(wants, pools={"nfs": 10 * GIB}), PLAIN)
    assert (found.fits, found.total) == ({"hv1": 3, "hv2": 3}, 3)
    cloud = {one.name: one for one in hosts}
    cloud = account.after_placement(
        cloud, "hv1", replace(wants, pools={"nfs": 25 * GIB}), guest("new")
    )
    assert cloud["hv2"].free_store_bytes(PLAIN, cloud["hv2"].pool_store("nfs")) == 5 * GIB
    assert cloud["hv1"].free_store_bytes(PLAIN, cloud["hv1"].pool_store("nfs")) == 5 * GIB


def test_a_host_is_told_what_others_promise():
    """What goes with the request makes the host's own count the master's."""
    alone, other = shared("hv1", 30), shared("hv2", 40)
    seen = account.joined([alone, other])[0]
    terms = account.terms(seen, PLAIN)
    assert terms.elsewhere == {"nfs nas:/vm": 40 * GIB}
    with_others = account.with_reserved(alone, terms.elsewhere)
    assert with_others.free_store_bytes(PLAIN, with_others.pool_store("nfs")) == 30 * GIB
    assert "elsewhere" not in account.terms(host(), PLAIN).to_answer()
    assert account.terms(account.joined([alone])[0], PLAIN).elsewhere == {}, "nobody else has it"
    local = host(stores={"/x": StorageSpace(GIB, GIB, elsewhere_bytes=7)})
    assert account.terms(local, PLAIN).elsewhere == {}, "nobody else can reach it"


def test_a_guest_on_shared_storage_moves_without_wanting_room_there():
    disk = DiskFootprint(60 * GIB, pool="nfs", shared="nfs nas:/vm")
    beside = DiskFootprint(5 * GIB, "/nfs/a.qcow2", shared="nfs nas:/vm")
    moving = guest("web1", disks=(disk, beside))
    request = facts.of_guest(moving, host())
    full = shared("hv2", 100)
    assert why(full, request) is None
    local = replace(full.pools["nfs"], shared=None)
    local = replace(full, pools={"nfs": local},
                    stores={"/nfs": replace(full.stores["/nfs"], shared=None)})  # fmt: skip
    assert why(local, request)[0] in ("disk", "pools")


def test_a_guest_is_known_by_its_definition_and_by_what_it_was_made_for():
    """D12: what init honoured holds for the guest's next host."""
    kept = guest(
        "web1", bridges=frozenset({"br7"}), networks=frozenset({"lan"}), labels={"rack": "a"},
        prefer={"disk": "ssd"},
        group_policy="separate", cpu_model="Skylake-Server", page_kib=2048, type="kvm",
        disks=(DiskFootprint(GIB, pool="ssd"),),
    )  # fmt: skip
    request = facts.of_guest(replace(kept, groups=("web",)), host())
    there = host("hv2")
    for changes, fell_at in (
        ({}, "labels"),
        ({"labels": {"rack": "a"}}, "bridges"),
        ({"bridges": frozenset({"br7"})}, "networks"),
        ({"networks": frozenset({"lan"}), "guests": (replace(guest(), groups=("web",)),)},
         "separate"),
        ({"guests": ()}, "memory"),
        ({"hugepages": {2048: 16 * GIB_KIB}}, "pools"),
    ):  # fmt: skip
        there = replace(there, **changes)
        assert why(there, request)[0] == fell_at
    pool = StoragePool(GIB, 2 * GIB)
    assert why(replace(there, pools={"ssd": pool}), request) is None
    assert request.prefer == {"disk": "ssd"}


def test_a_hosts_own_stricter_limits_hold_as_well():
    """W2: the master's policy decides, and what the host says more strictly."""
    loose = replace(PLAIN, memory_ratio=2.0)
    big = PlacementRequest("new", 1, 100 * GIB_KIB)
    assert why(host(), big, loose) is None
    assert why(host(limits={"memory_ratio": 1.5}), big, loose)[0] == "memory"
    assert why(host(limits={"memory_ratio": 9}), big, loose) is None, "looser it cannot be"
    assert why(host(limits={"memory_ratio": 9}), big)[0] == "memory"
    assert why(host(limits={"reserved_memory_kib": 40 * GIB_KIB}), big, loose)[0] == "memory"
    off = guest(state="shutdown", memory_gib=60)
    free = replace(PLAIN, stopped_ratio=0.0)
    assert why(host(guests=[off]), PlacementRequest("new", 1, 8 * GIB_KIB), free) is None
    strict = host(guests=[off], limits={"stopped_ratio": 1})
    assert why(strict, PlacementRequest("new", 1, 8 * GIB_KIB), free)[0] == "memory"


def test_a_policy_travels_as_plain_data():
    found = policy.from_config({"memory_ratio": 2, "overhead_kib": 0}, ["hv9"])
    again = policy.from_config(found.to_wire())
    assert again == replace(found, exclude=())
    assert set(found.to_wire()) == policy.SETTINGS


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"ratios": {"cpu": "4x"}}, "virt:ratios: cpu must be a number from 0, not '4x'"),
        ({"ratios": {"cpu": None}}, "virt:ratios: cpu must be a number"),
        ({"ratios": {"cpu": float("nan")}}, "virt:ratios: cpu must be a number"),
        ({"ratios": {"cpus": 4}}, "virt:ratios: unknown ratio cpus"),
        ({"ratios": "4"}, "virt:ratios must be a mapping"),
        ({"placement": {"cpu_ratoi": 4}}, "virt:placement: unknown setting cpu_ratoi"),
        ({"placement": {"cpu_ratio": "4x"}}, "virt:placement: cpu_ratio must be a number"),
        ({"ratios": {"disk": 1e308}}, "virt:ratios: disk is larger than"),
        ({"ratios": {"disk": 10**400}}, "virt:ratios: disk is larger than"),
        ({"labels": "rack1"}, "virt:labels must be a mapping, not 'rack1'"),
        ({"labels": ["rack1"]}, "virt:labels must be a mapping"),
    ],
)
def test_what_a_hosts_configuration_has_wrong_is_named(data, words):
    with pytest.raises(InvalidInput, match=words):
        inventories.host("hv1", {"cpus": 1, "memory_kib": 1, **data})


@pytest.mark.parametrize("bad", [float("inf"), float("nan"), 1e308, -1, True])
def test_a_number_that_is_none_is_refused(bad):
    with pytest.raises(InvalidInput, match=r"virt:placement: memory_ratio (must be a n|is larger)"):
        policy.from_config({"memory_ratio": bad})
    with pytest.raises(InvalidInput, match=r"virt:placement: memory (must be a n|is larger)"):
        policy.from_config({"weights": {"memory": bad}})


@pytest.mark.parametrize(
    "bad",
    [
        {"cpus": float("inf")},
        {"cpus": float("nan")},
        {"stores": {"/": {"total_bytes": 1, "free_bytes": "much"}}},
        {"stores": {"/": {"total_bytes": 1, "free_bytes": float("inf")}}},
        {"pools": {"fast": {"total_bytes": None, "free_bytes": 1}}},
        {"guests": {"web1": {"vcpus": 1, "memory_kib": 1, "max_memory_kib": "much"}}},
        {"arriving": {"web1": {"vcpus": 1, "memory_kib": "much"}}},
        {"hugepages": {"2048": "many"}},
        {"guest": {"vcpus": 1, "memory_kib": "much"}},
        {"guest": {"vcpus": [1], "memory_kib": 1}},
        {"placement": {"cpu_ratio": 1e308}},
    ],
)
def test_one_host_that_tells_nonsense_costs_only_itself(bad):
    """Until now the other hosts were not placed on, either."""
    good = {"cpus": 8, "memory_kib": 64 * GIB_KIB, "types": ["kvm"]}
    said = [
        Answer("hv1", {**good, **bad}),
        Answer("hv2", good),
    ]
    fleet = SimpleNamespace(hosts=lambda: ["hv1", "hv2"], ask=lambda *_args, **_more: said)
    hosts, unreachable = inventory.gather(fleet, guest={"name": "new"})
    assert [one.name for one in hosts] == ["hv2"]
    assert list(unreachable) == ["hv1"]


def test_of_a_stopped_guest_the_policys_part_counts():
    half = replace(PLAIN, stopped_ratio=0.5)
    off = PlacementRequest("off", 5, 7 * GIB_KIB, stopped=True)
    assert account.demand(off, host(), half) == (2.5, 3.5 * GIB_KIB, {})
    pages = replace(off, page_kib=2048)
    assert account.demand(pages, host(), half) == (2.5, 0, {2048: 3.5 * GIB_KIB})


def test_a_path_is_on_the_longest_mount_above_it():
    mounts = {"/": 1, "/srv": 2, "/srv/vm": 3}
    for path, found in (("/srv/vm/a", "/srv/vm"), ("/srv/a", "/srv"), ("/a", "/"), ("/", "/")):
        assert resources.longest(mounts, path) == found
    assert resources.longest({"/srv": 2}, "/a") is None
    assert resources.longest({"/srv": 2}, "/") is None
    assert resources.longest({"/srv": 2}, "") is None


def test_storage_of_which_nothing_is_wanted_or_that_is_not_there_is_not_charged():
    assert account.storage(PlacementRequest("new", 1, 1), host()) == {}
    elsewhere = PlacementRequest(
        "new", 1, 1, disks=(DiskFootprint(GIB, pool="ssd"),), pools={"hdd": 5}
    )
    assert account.storage(elsewhere, host()) == {}
    over = host(disk_promised_bytes=200 * GIB)
    assert account.shortfalls(PlacementRequest("new", 1, 1, disk_bytes=1), over, PLAIN) == {
        "images": (1, 0)
    }


def test_who_shares_nothing_is_as_he_was_and_keeps_what_was_counted():
    alone, sharing = host("hv1"), shared("hv2", 10)
    assert account.joined([alone, sharing])[0] is alone
    assert account.with_reserved(alone, {"nfs nas:/vm": 5}) is alone
    asked = PlacementRequest("new", 1, 1, disk_bytes=GIB, pools={"nfs": GIB})
    cloud = {
        one.name: one for one in (alone, sharing, host("hv3", stores={"/": StorageSpace(9, 9)}))
    }
    after = account.after_placement(cloud, "hv2", asked, guest("new"))
    assert after["hv1"] is alone
    assert after["hv3"] is cloud["hv3"], "another host's own disk is not the one that was taken"
    local = account.after_placement(cloud, "hv1", replace(asked, pools={}), guest("new"))
    assert local["hv3"] is cloud["hv3"]
    assert local["hv2"] is sharing


def test_numbers_that_are_not_told_are_nothing():
    assert Guest("g").max_memory_kib == 0
    assert resources.promised_kib(Guest("g")) == 0
    assert host(memory_kib=100).capacity_memory_kib(policy.PlacementPolicy()) == 0
    assert PLAIN.stricter({}) is PLAIN
    assert host().effective_policy(PLAIN) is PLAIN


def test_huge_pages_without_a_size_are_the_hosts_usual_ones():
    sizes = {2048: 8 * GIB_KIB, 1048576: 4 * GIB_KIB}
    told, guessed = host(hugepages=sizes, page_kib=1048576), host(hugepages=sizes)
    assert (told.usual_page_kib(0), told.usual_page_kib(2048)) == (1048576, 2048)
    assert (guessed.usual_page_kib(0), host().usual_page_kib(0)) == (2048, 0)
    both = [guest("a", 1, page_kib=0), guest("b", 2, page_kib=1048576), guest("c", 3)]
    used = replace(told, guests=tuple(both))
    assert used.free_hugepages_kib(PLAIN, 1048576) == GIB_KIB
    assert used.free_hugepages_kib(PLAIN, 2048) == 8 * GIB_KIB
    assert used.free_hugepages_kib(PLAIN, 4) == 0, "the host has none of these"
    off = replace(told, guests=(guest("a", 2, "shutdown", page_kib=0),))
    half = replace(PLAIN, stopped_ratio=0.5)
    assert off.free_hugepages_kib(half, 1048576) == 3 * GIB_KIB


def test_a_disk_in_a_pool_is_charged_to_the_pool():
    there = host(pools={"ssd": StoragePool(9 * GIB, 9 * GIB)})
    moving = PlacementRequest("web1", 1, 1, disks=(DiskFootprint(5 * GIB, pool="ssd"),))
    assert account.storage(moving, there) == {"pool ssd": 5 * GIB}


def test_of_a_host_that_was_not_heard_only_the_policy_is_known():
    assert account.terms(None, PLAIN).to_answer() == {"policy": PLAIN.to_wire()}
