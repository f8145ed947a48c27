"""Each filter and weight by itself: its reason and its limit."""

from dataclasses import replace

import pytest

from saltvirt.errors import InvalidInput
from saltvirt.placement import choose, policy, weights
from saltvirt.placement.facts import (
    DiskFootprint,
    Guest,
    Host,
    Needs,
    PlacementRequest,
    StoragePool,
    StorageSpace,
)
from tests.unit.placement import NOTHING_BESIDE

GIB_KIB = 1024**2
GIB = 1024**3
PLAIN = policy.from_config(NOTHING_BESIDE)
HV = Host(
    "hv1", cpus=8, memory_kib=16 * GIB_KIB, types=("kvm",), disk_total_bytes=100 * GIB,
    disk_free_bytes=80 * GIB,
)  # fmt: skip
ASK = PlacementRequest("web1", 2, GIB_KIB)


def fell(name, host=HV, request=ASK, by=PLAIN):
    """Why this filter alone rejects the host."""
    found = choose.first_reason(host, request, by, only_filters=(name,))
    return found and found[1]


def test_the_cpu_model_that_the_host_can_give():
    knows = replace(HV, needs=Needs(cpu_models=frozenset({"Skylake"})))
    assert fell("cpu_model", knows) is None, "none is wanted"
    assert fell("cpu_model", knows, replace(ASK, cpu_model="Skylake")) is None
    wanted = replace(ASK, cpu_model="EPYC")
    assert fell("cpu_model", knows, wanted) == "does not support the CPU model EPYC"
    assert fell("cpu_model", replace(HV, needs=Needs()), wanted) is None, "it does not tell"
    assert fell("cpu_model", HV, wanted) is None


def test_what_a_profile_asks_for_is_looked_at_where_a_profile_is_used():
    cannot = replace(HV, needs=Needs(problem="has no profile big"))
    assert fell("profile", cannot, replace(ASK, by_profile=True)) == "has no profile big"
    assert fell("profile", cannot) is None
    assert fell("profile", HV, replace(ASK, by_profile=True)) is None


@pytest.mark.parametrize(
    ("arch", "arches", "wanted", "words"),
    [
        ("x86_64", (), "x86_64", None),
        ("x86_64", ("x86_64", "aarch64"), "aarch64", None),
        ("x86_64", ("x86_64", "i686"), "aarch64", "runs x86_64, i686, not aarch64"),
        ("", (), "x86_64", "runs no known architecture, not x86_64"),
        ("", (), None, None),
    ],
)
def test_the_architectures_that_the_host_runs(arch, arches, wanted, words):
    assert fell("arch", replace(HV, arch=arch, arches=arches), replace(ASK, arch=wanted)) == words


@pytest.mark.parametrize(
    ("types", "wanted", "words"),
    [
        (("qemu",), "kvm", None),
        (("kvm",), "qemu", None),
        (("lxc",), "lxc", None),
        (("lxc",), "kvm", "runs lxc, not kvm"),
        ((), "kvm", "runs nothing, not kvm"),
        (("kvm",), "lxc", "runs kvm, not lxc"),
    ],
)
def test_the_guests_that_the_hosts_libvirt_runs(types, wanted, words):
    assert fell("hypervisor", replace(HV, types=types), replace(ASK, hypervisor=wanted)) == words


def test_all_that_is_missing_is_named():
    many = frozenset({"b", "a"})
    assert fell("bridges", request=replace(ASK, bridges=many)) == "has no bridge a, b"
    networks = replace(ASK, networks=many)
    assert fell("networks", request=networks) == "has no active libvirt network a, b"
    pools = replace(ASK, pools={"b": 1}, disks=(DiskFootprint(1, pool="a"), DiskFootprint(1, "/x")))
    assert fell("pools", request=pools) == "has no storage pool a, b"
    labels = replace(ASK, labels={"rack": "a"})
    assert fell("labels", request=labels) == "lacks the label rack='a'"
    assert fell("labels", replace(HV, labels={"rack": "b"}), labels) == (
        "has the label rack='b', not 'a'"
    )
    assert fell("labels", replace(HV, labels={"rack": "a"}), labels) is None


def test_a_storage_that_does_not_answer_is_no_place_and_the_others_are():
    stores = {"/": StorageSpace(100 * GIB, 80 * GIB), "/nfs": StorageSpace(100 * GIB, 80 * GIB)}
    pools = {
        "nfs": StoragePool(100 * GIB, 80 * GIB, store="/nfs"),
        "ssd": StoragePool(100 * GIB, 80 * GIB),
    }
    host = replace(
        HV, stores=stores, pools=pools, mounts={"/": "/", "/nfs": "/nfs"}, images_store="/"
    )
    hung = replace(host, silent=("/nfs",))
    images, ssd = (
        replace(ASK, disk_bytes=GIB),
        replace(ASK, disks=(DiskFootprint(GIB, pool="ssd"),)),
    )
    in_nfs = replace(ASK, disks=(DiskFootprint(GIB, "/nfs/a.qcow2"),))
    of_nfs = replace(ASK, pools={"nfs": GIB})
    assert fell("disk", hung, images) is None
    assert fell("disk", hung, in_nfs) == "/nfs does not respond"
    assert fell("pools", hung, of_nfs) == "pool nfs is on /nfs, which does not respond"
    assert fell("pools", hung, ssd) is None
    root = replace(host, silent=("/",))
    assert fell("disk", root, images) == "/ does not respond"
    assert fell("disk", root, ssd) is None
    assert fell("disk", root, in_nfs) is None
    assert fell("pools", root, of_nfs) is None
    assert fell("disk", replace(host, silent=("/gone",)), images) is None


def test_just_as_much_as_there_is_may_be_wanted():
    for name, request in (
        ("vcpu", replace(ASK, vcpus=8)),
        ("memory", replace(ASK, memory_kib=16 * GIB_KIB)),
        ("disk", replace(ASK, disk_bytes=80 * GIB)),
    ):
        assert fell(name, request=request) is None
    assert fell("disk", request=replace(ASK, disk_bytes=81 * GIB)) == (
        "81 GiB of disk space requested, 80 GiB free"
    )
    assert fell("vcpu", request=replace(ASK, vcpus=9)) == "9 vCPUs requested, the host has 8 CPUs"
    full = replace(HV, guests=(Guest("a", state="running", vcpus=30),))
    assert fell("vcpu", full) is None
    over = replace(HV, guests=(Guest("a", state="running", vcpus=40),))
    assert fell("vcpu", over) == "2 vCPUs requested, 0 of 32 free"
    half = replace(PLAIN, stopped_ratio=0.5)
    assert fell("vcpu", over, replace(ASK, vcpus=1, stopped=True), half) == (
        "0.5 vCPUs requested, 0 of 32 free"
    )


def test_the_memory_that_is_wanted_is_told_with_what_qemu_takes():
    over = replace(HV, guests=(Guest("a", state="running", memory_kib=20 * GIB_KIB),))
    assert fell("memory", over) == "1024 MiB of memory requested, 0 of 16384 MiB free"
    beside = replace(PLAIN, overhead_kib=1024)
    container = replace(over, guests=(replace(over.guests[0], type="lxc"),))
    assert fell("memory", container, by=beside) == (
        "1024 MiB of memory requested and 1 for QEMU, 0 of 16384 MiB free"
    )
    off = replace(ASK, stopped=True, max_memory_kib=2 * GIB_KIB)
    half = replace(PLAIN, overhead_kib=4096, stopped_ratio=0.5)
    assert fell("memory", container, off, half) == (
        "1024 MiB of memory requested and 2 for QEMU, 0 of 16384 MiB free"
    )
    pages = replace(ASK, page_kib=2048)
    assert fell("memory", container, pages, beside).startswith("1 MiB of memory requested, 0 of")
    tiny = replace(pages, memory_kib=2048)
    assert fell("memory", container, tiny, half).startswith("4 MiB of memory requested, 0 of")
    small = replace(HV, hugepages={2048: GIB_KIB}, guests=(
        Guest("a", state="running", memory_kib=2 * GIB_KIB, page_kib=2048),))  # fmt: skip
    assert fell("memory", small, pages) == (
        "1024 MiB of huge pages of 2048 KiB requested, 0 of 1024 MiB free"
    )


def test_guests_of_a_group_keep_apart_where_that_is_asked_for():
    mates = (Guest("w1", groups=("db",)), Guest("w2", groups=("web", "app")))
    host, apart = replace(HV, guests=mates), replace(ASK, groups=("app", "web"))
    assert fell("separate", host, apart) is None
    apart = replace(apart, group_policy="separate")
    assert fell("separate", host, apart) == "already has w2 of group app, web"
    assert fell("separate", HV, apart) is None


def score(name, host=HV, request=ASK, by=PLAIN):
    return weights.ALL[name].score(host, request, by)


def test_what_is_left_counts_as_a_part_of_the_hosts_own_size():
    nothing = Host("none", cpus=0, memory_kib=0)
    assert score("memory", request=replace(ASK, memory_kib=4 * GIB_KIB)) == 0.75
    assert score("vcpu", request=replace(ASK, vcpus=8)) == 0.75
    assert score("disk") == 0.8
    assert score("disk", request=replace(ASK, disk_bytes=20 * GIB)) == 0.6
    assert [score(name, nothing) for name in ("memory", "vcpu", "disk")] == [0.0, 0.0, 0.0]
    pool = replace(HV, pools={"ssd": StoragePool(10 * GIB, 5 * GIB)})
    both = replace(ASK, disk_bytes=20 * GIB, pools={"ssd": 4 * GIB})
    assert score("disk", pool, both) == 0.1, "of what is left least of"


def test_a_host_that_has_the_image_is_better():
    here, asked = replace(HV, images=frozenset({"salt://a"})), replace(ASK, image="salt://a")
    assert (score("image", here, asked), score("image", HV, asked)) == (1.0, 0.0)
    assert score("image", here) == 0.0
    by_profile = replace(ASK, by_profile=True)
    for cached in (True, False):
        host = replace(HV, needs=Needs(image_here=cached))
        assert score("image", host, by_profile) == float(cached)
        assert score("image", host) == 0.0
    assert score("image", here, replace(asked, by_profile=True)) == 1.0, "a host of an old version"


def test_preferred_labels_and_mates():
    liked = replace(ASK, prefer={"disk": "ssd", "rack": "a"})
    assert score("labels", replace(HV, labels={"disk": "ssd", "rack": "b"}), liked) == 0.5
    assert score("labels", replace(HV, labels=liked.prefer), liked) == 1.0
    assert score("labels") == 0.0
    mates = replace(HV, guests=(Guest("w1", groups=("web",)), Guest("w2", groups=("db",))))
    web = replace(ASK, groups=("web",))
    assert score("spread", mates, web) == -1.0
    assert score("spread", mates, replace(web, group_policy="gather")) == 1.0
    assert score("spread", mates) == 0.0


def test_the_smallest_and_the_largest_number_of_a_setting():
    assert policy.from_config({"cpu_ratio": 0, "memory_ratio": 2**60}).memory_ratio == 2**60
    assert policy.from_config(None) == policy.PlacementPolicy()
    assert policy.ratios({"cpu": 0.5}) == {"cpu": 0.5}
    assert policy.ratios(None) == {}
    with pytest.raises(InvalidInput, match="virt:placement:weights must be a mapping"):
        policy.from_config({"weights": [1]})
    with pytest.raises(InvalidInput, match=r"unknown setting 5, luck; known: cpu_ratio, .*, we"):
        policy.from_config({"luck": 1, 5: 1})


def test_a_host_has_no_weights_of_its_own_and_is_not_looser_than_the_master():
    assert policy.limits({"weights": "x", "cpu_ratio": 2}) == {"cpu_ratio": 2}
    own = {"cpu_ratio": 9, "memory_ratio": 0.5, "stopped_ratio": 0.1, "overhead_kib": 10**6}
    found = PLAIN.stricter(own)
    assert (found.cpu_ratio, found.memory_ratio) == (4.0, 0.5)
    assert (found.stopped_ratio, found.overhead_kib) == (1.0, 10**6)


def test_the_masters_policy():
    opts = {"virt": {"placement": {"cpu_ratio": 2}, "exclude": ["hv9"]}}
    found = policy.of_master(opts)
    assert (found.cpu_ratio, found.exclude) == (2, ("hv9",))
    assert policy.of_master({}) == policy.PlacementPolicy()
