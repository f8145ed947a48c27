from dataclasses import replace

from saltvirt.placement import capacity, policy
from saltvirt.placement.facts import Guest, Host, PlacementRequest, StoragePool
from tests.unit.placement import NOTHING_BESIDE

GIB_KIB = 1024**2
GIB = 1024**3
PLAIN = policy.from_config(NOTHING_BESIDE)
ASK = PlacementRequest("x", vcpus=1, memory_kib=GIB_KIB)


def host(name, memory_gib=8, guests=()):
    return Host(name, cpus=4, memory_kib=memory_gib * GIB_KIB, guests=tuple(guests), types=("kvm",))


def test_the_scarcest_thing_limits():
    found = capacity.capacity([host("a"), host("b", 64)], ASK, PLAIN)
    assert found.fits == {"a": 8, "b": 16}
    assert found.limits == {"a": "memory", "b": "vcpu"}
    assert found.total == 24


def test_with_one_host_lost_its_guests_take_room_on_the_others():
    busy = host("a", guests=[Guest("g", state="running", vcpus=1, memory_kib=6 * GIB_KIB)])
    found = capacity.capacity([busy, host("b")], ASK, PLAIN)
    assert found.fits == {"a": 2, "b": 8}
    assert found.lost == {"a": (2, []), "b": (2, [])}
    assert found.total_with_one_lost == 2


def test_a_guest_without_a_place_makes_the_loss_of_its_host_count_as_nothing_left():
    big = host("a", 16, [Guest("g", state="running", vcpus=1, memory_kib=12 * GIB_KIB)])
    found = capacity.capacity([big, host("b")], ASK, PLAIN)
    assert found.lost["a"] == (8, ["g"])
    assert found.total_with_one_lost == 0


def test_a_host_that_falls_says_why_and_separate_guests_fit_once():
    down = replace(host("a"), maintenance="disks")
    one = replace(ASK, groups=("web",), group_policy="separate")
    found = capacity.capacity([down, host("b")], one, PLAIN)
    assert found.fits == {"a": 0, "b": 1}
    assert found.limits == {"a": "maintenance", "b": "separate"}


def test_storage_of_its_own_gives_each_host_its_room():
    disks = {"disk_total_bytes": 100 * GIB, "disk_free_bytes": 50 * GIB}
    hosts = [replace(host(name, 64), cpus=64, **disks) for name in "abc"]
    found = capacity.capacity(hosts, replace(ASK, disk_bytes=10 * GIB), PLAIN)
    assert found.fits == {"a": 5, "b": 5, "c": 5}
    assert found.total == 15


def test_no_host_has_room_for_nobody():
    assert capacity.capacity([], ASK, PLAIN).total_with_one_lost == 0
    assert capacity.capacity([], ASK, PLAIN).total == 0


def test_a_host_counts_guests_and_not_their_cpus():
    assert capacity.count(host("a", 64), replace(ASK, vcpus=4), PLAIN) == (4, "vcpu")


def test_what_ends_it_is_named_as_the_filter_is():
    pages = replace(host("a"), hugepages={2048: 3 * GIB_KIB})
    assert capacity.count(pages, replace(ASK, page_kib=2048), PLAIN) == (
        3, "huge pages of 2048 KiB"
    )  # fmt: skip
    folder = replace(host("a"), disk_total_bytes=9 * GIB, disk_free_bytes=9 * GIB)
    assert capacity.count(folder, replace(ASK, disk_bytes=2 * GIB), PLAIN) == (4, "disk")
    pool = replace(host("a"), pools={"ssd": StoragePool(9 * GIB, 9 * GIB)})
    assert capacity.count(pool, replace(ASK, pools={"ssd": 3 * GIB}), PLAIN) == (3, "pool ssd")
    assert capacity.count(pool, replace(ASK, pools={"ssd": 0}), PLAIN) == (8, "memory")
    assert capacity.count(host("a"), replace(ASK, groups=("web",)), PLAIN) == (8, "memory")
    assert capacity.count(host("a"), replace(ASK, group_policy="separate"), PLAIN)[0] == 8


def on_nas(name, memory_gib, free_gib, promised_gib=0):
    nas = StoragePool(
        100 * 1024**3, free_gib * 1024**3, promised_gib * 1024**3, shared="nfs nas:/vm"
    )
    return replace(host(name, memory_gib), pools={"nfs": nas})


def test_storage_that_several_hosts_reach_gives_its_room_once():
    ask = replace(ASK, pools={"nfs": 2 * 1024**3})
    hosts = [on_nas("a", 3, 10), on_nas("b", 8, 10)]
    assert capacity.capacity(hosts, ask, PLAIN).total == 5
    assert capacity.capacity([*hosts, on_nas("c", 8, 4)], ask, PLAIN).total == 5
    over = on_nas("d", 8, 10, promised_gib=90)
    found = capacity.capacity([over, *hosts], ask, PLAIN)
    assert (found.fits["d"], found.total) == (0, 5), "who has promised too much takes nothing away"
    local = replace(ASK, disk_bytes=1024**3)
    alone = [replace(one, disk_total_bytes=2**40, disk_free_bytes=2**40) for one in hosts]
    assert capacity.capacity(alone, local, PLAIN).total == 11
    assert capacity.capacity(hosts, replace(ASK, pools={"nfs": 0}), PLAIN).total == 11


def test_a_guest_that_is_off_is_not_looked_after_when_its_host_is_lost():
    off = host("a", 16, [Guest("g", state="shutdown", vcpus=1, memory_kib=12 * GIB_KIB)])
    assert capacity.capacity([off, host("b")], ASK, PLAIN).lost["a"] == (8, [])
