"""The host admits by the master's policy and its own stricter one: init, start, setmem, setvcpus,
resize_disk, update."""

import gc
import os
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.answers.migration import RecoveryResult
from saltvirt.host.node import inventory
from saltvirt.operations.create.init import Init
from saltvirt.operations.create.request import InitRequest
from saltvirt.operations.guest.lifecycle import Lifecycle
from saltvirt.placement import choose, facts, policy
from tests.driver import only_test
from tests.fakes import inventory as inventories
from tests.functional import asking
from tests.functional.cloud import Fleet
from tests.functional.conftest import load

MIB = 1024**2
GIB = 1024**3
BARE = {"reserved_memory_kib": 0, "reserved_memory_ratio": 0, "reserved_disk_bytes": 0,
        "overhead_kib": 0, "overhead_vcpu_kib": 0, "overhead_ratio": 0}  # fmt: skip


@pytest.fixture
def made(tmp_path):
    """A function that makes a host with 3 GiB, which runs a guest of 8, of a configuration."""
    raw = libvirt.open("test:///default")
    (tmp_path / "images").mkdir()
    only_test(raw)

    def make(**virt):
        return load("test:///default", images=str(tmp_path / "images"),
                    lock=str(tmp_path / "lock"), **virt)  # fmt: skip

    yield SimpleNamespace(load=make, conn=raw, tmp_path=tmp_path)
    only_test(raw)
    raw.close()
    gc.collect()  # a traceback can hold a host: it lives until the last object goes


def by_runner(made, modules, by, name="web1", **given):
    fleet = Fleet(modules, made.tmp_path)
    wanted = InitRequest(name, 1, 64, None, "test", start=given.pop("start", False),
                    arguments={"seed": False, "nic": None, "disk": None, **given})  # fmt: skip
    return Init(fleet, by, wanted, fleet.report(name, "init")).run()


def test_a_ratio_on_the_master_and_nothing_on_the_host(made):
    """W2: the master accepted and the host said "64 MiB wanted, 0 free"."""
    modules = made.load()
    with pytest.raises(errors.VirtError, match="of memory requested"):
        by_runner(made, modules, policy.PlacementPolicy())
    assert (
        by_runner(made, modules, policy.PlacementPolicy(memory_ratio=4.0), start=True).details[
            "state"
        ]
        == "running"
    )


def test_a_host_that_is_stricter_is_seen_by_the_master_and_holds(made):
    modules = made.load(placement={"memory_ratio": 2})
    by = policy.PlacementPolicy(memory_ratio=4.0)
    with pytest.raises(errors.VirtError, match=r"no host can take web1.*of memory requested"):
        by_runner(made, modules, by)
    with pytest.raises(errors.VirtError, match=r"no room: .*of memory requested") as caught:
        modules["virt.init"]("web1", 1, 64, seed=False, nic=None, disk=None,
                             placement={"policy": by.to_wire()})  # fmt: skip
    assert type(caught.value).__name__ == "NoRoom"


def test_a_typo_in_a_hosts_policy_is_named(made):
    modules = made.load(placement={"memory_ratoi": 2})
    with pytest.raises(errors.VirtError, match="virt:placement: unknown setting memory_ratoi"):
        modules["virt.init"]("web1", 1, 64, seed=False, nic=None, disk=None)


def define(conn, name="off", memory_mib=1024, vcpus=1, more=""):
    xml = f"""<domain type='test'><name>{name}</name><memory unit='MiB'>{memory_mib}</memory>
      <vcpu>{vcpus}</vcpu><os><type>hvm</type></os>{more}</domain>"""
    return conn.defineXML(xml)


def test_start_is_refused_where_memory_would_be_overcommitted(made):
    """D15: virt.start admitted nothing."""
    modules = made.load(placement={**BARE, "memory_ratio": 3, "stopped_ratio": 0})  # 9 GiB
    define(made.conn, "a", 900)
    define(made.conn, "b", 900)
    assert modules["virt.start"]("a", test=True) is True
    assert made.conn.lookupByName("a").isActive() == 0
    assert modules["virt.start"]("a") is True
    with pytest.raises(
        errors.VirtError, match=r"900 MiB of memory requested, 124 of .*overcommit=True"
    ):
        modules["virt.start"]("b")
    assert made.conn.lookupByName("b").isActive() == 0
    assert modules["virt.start"]("b", overcommit=True) is True
    made.conn.lookupByName("b").destroy()
    lax = made.load(placement={**BARE, "memory_ratio": 3, "stopped_ratio": 0}, overcommit=True)
    assert lax["virt.start"]("b") is True


def test_stopped_guests_do_not_keep_another_from_starting(made):
    """With Salt 3007 a host had as many as one liked."""
    modules = made.load(placement={**BARE, "memory_ratio": 3})
    for number in range(9):
        define(made.conn, f"g{number}", 900)
    assert modules["virt.start"]("g3") is True


def test_start_by_name_goes_by_the_masters_policy(made):
    modules = made.load(placement={**BARE})
    define(made.conn, "a", 100)
    fleet = Fleet(modules, made.tmp_path)
    with pytest.raises(errors.VirtError, match="100 MiB of memory requested"):
        Lifecycle(fleet, "a", "start").run()
    fleet.opts["virt"] = {"placement": {**BARE, "memory_ratio": 4}}
    checked = Lifecycle(fleet, "a", "start").check()
    assert checked.changes == {"state": {"old": "shutdown", "new": "running"}}
    assert made.conn.lookupByName("a").isActive() == 0
    assert Lifecycle(fleet, "a", "start").run().details["state"] == "running"


@pytest.mark.parametrize(("verb", "more"), [("virt.setmem", 1500), ("virt.setvcpus", 80)])
def test_more_memory_and_cpus_are_admitted(made, verb, more):
    """D15: virt.setmem admitted nothing."""
    modules = made.load(placement={**BARE, "memory_ratio": 3})
    define(made.conn, "a", 900)
    before = made.conn.lookupByName("a").XMLDesc()
    with pytest.raises(errors.VirtError, match="requested") as caught:
        modules[verb]("a", more)
    assert type(caught.value).__name__ == "NoRoom"
    assert made.conn.lookupByName("a").XMLDesc() == before
    assert modules[verb]("a", 1 if verb == "virt.setvcpus" else 500) is True, (
        "less is never refused"
    )


def test_a_domain_that_is_started_from_xml_is_admitted(made):
    modules = made.load(placement={**BARE})
    xml = """<domain type='test'><name>t</name><memory unit='GiB'>1</memory>
      <os><type>hvm</type></os></domain>"""
    with pytest.raises(errors.VirtError, match="1024 MiB of memory requested"):
        modules["virt.create_xml_str"](xml)
    assert modules["virt.create_xml_str"](xml, overcommit=True) is True


def disk_xml(path):
    return f"""<devices><disk type='file' device='disk'><driver name='qemu' type='raw'/>
      <source file='{path}'/><target dev='vda' bus='virtio'/></disk></devices>"""


def read(conn, folder):
    return inventory.read(conn, lambda key, default=None: default, folder).to_answer()


def test_a_sparse_raw_disk_of_a_guest_that_is_off_promises_what_it_may_become(made):
    """D17: it promised 0 bytes."""
    folder = made.tmp_path / "images"
    store = read(made.conn, folder)["images_folder"]["promised_bytes"]
    path = folder / "thin.raw"
    with open(path, "wb") as file:
        file.truncate(3 * GIB)
    define(made.conn, "thin", more=disk_xml(path))
    found = read(made.conn, folder)
    assert found["images_folder"]["promised_bytes"] - store == 3 * GIB
    assert found["guests"]["thin"]["disks"] == [{"size_bytes": 3 * GIB, "path": str(path)}]
    define(made.conn, "twin", more=disk_xml(path))
    again = read(made.conn, folder)["images_folder"]["promised_bytes"] - store
    assert again == 3 * GIB, "a disk of two guests is one disk"


def test_a_disk_in_another_folder_is_charged_to_its_own_file_system(made):
    """D17: it was charged to virt:images."""
    tiny = "/dev/shm" if os.path.ismount("/dev/shm") else None
    if tiny is None:
        pytest.skip("no second file system")
    folder = made.tmp_path / "images"
    modules = made.load(placement={**BARE, "memory_ratio": 10})
    room = os.statvfs(tiny).f_bavail * os.statvfs(tiny).f_frsize
    disks = [{"name": "d", "size": 2 * room // MIB + 1024, "pool": tiny, "format": "raw"}]
    with pytest.raises(errors.VirtError, match=f"of disk space requested on {tiny}"):
        modules["virt.init"]("web1", 1, 64, seed=False, nic=None, disk=None, disks=disks)
    wish = {"name": "web1", "cpu": 1, "mem": 64, "nic": None, "disk": None, "disks": disks}
    told = asking.answer(modules, "virt.inventory", guest={**wish, "seed": False})
    asked = facts.PlacementRequest("web1", 1, 65536, by_profile=True, hypervisor="test")
    host = inventories.host("hv1", told)
    by = policy.from_config({**BARE, "memory_ratio": 10})
    assert f"of disk space requested on {tiny}" in choose.first_reason(host, asked, by)[1]
    assert not list(folder.iterdir())


def test_what_init_was_asked_for_is_kept_with_the_guest(made):
    modules = made.load(labels={"rack": "a"}, placement={**BARE, "memory_ratio": 4})
    fleet = Fleet(modules, made.tmp_path)
    wanted = InitRequest("web1", 1, 64, None, "test", start=False, groups=("web", "eu"),
                    group_policy="separate", labels={"rack": "a"}, prefer={"disk": "ssd"},
                    arguments={"seed": False, "nic": None, "disk": None})  # fmt: skip
    by = policy.from_config({**BARE, "memory_ratio": 4})
    Init(fleet, by, wanted, fleet.report("web1", "init")).run()
    host = inventories.host("hv1", asking.answer(modules, "virt.inventory"))
    kept = facts.of_guest(next(g for g in host.guests if g.name == "web1"), host)
    assert (kept.labels, kept.prefer) == ({"rack": "a"}, {"disk": "ssd"})
    assert (kept.groups, kept.group_policy) == (("web", "eu"), "separate")


def test_a_disk_grows_only_into_room_that_is_promised_to_nobody(made):
    modules = made.load(placement={**BARE, "memory_ratio": 4})
    path = made.tmp_path / "images" / "a.raw"
    path.write_bytes(bytes(MIB))
    define(made.conn, "a", 10, more=disk_xml(path))
    free = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize
    other = made.tmp_path / "images" / "thin.raw"
    with open(other, "wb") as file:
        file.truncate(free // 2)
    define(made.conn, "thin", 10, more=disk_xml(other))
    with pytest.raises(errors.VirtError, match="of disk space requested") as caught:
        modules["virt.resize_disk"]("a", "vda", free // MIB)
    assert type(caught.value).__name__ == "NoRoom"
    assert path.stat().st_size == MIB
    assert modules["virt.resize_disk"]("a", "vda", 3)["after"] == 3 * MIB


def test_the_sources_overcommit_says_nothing_of_the_targets_room(made, monkeypatch):
    """A host that may be overcommitted itself would have filled others past their policy."""
    from saltvirt.host.migration import api

    orders = []
    monkeypatch.setattr(
        api, "migrate", lambda _conn, order: orders.append(order) or RecoveryResult()
    )
    modules = made.load(overcommit=True)
    modules["virt.migrate"]("test", "hyper2")
    modules["virt.migrate"]("test", "hyper2", overcommit=True)
    assert [order.overcommit for order in orders] == [False, True]
    with pytest.raises(errors.VirtError, match="invalid overcommit: 'no'"):
        modules["virt.migrate"]("test", "hyper2", overcommit="no")
