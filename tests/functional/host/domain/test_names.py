"""The record of device names after each verb that creates or changes a guest."""

import subprocess

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

import salt.loader

from saltvirt import errors
from saltvirt.design import identity
from saltvirt.host.domain import metadata
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.metadata import MetadataEntry
from tests.functional.conftest import REPOSITORY
from tests.functional.host.provision.test_init import host, image  # noqa: F401

DISKS = [
    {"name": "system", "size": 16, "format": "raw"},
    {"name": "data", "size": 4, "format": "raw"},
]
NICS = [
    {"name": "eth0", "type": "user"},
    {"type": "user"},
    {"name": "eth1", "type": "user"},
]


def domain(host, name="g1"):  # noqa: F811
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE
    return Domain.fromstring(host.conn.lookupByName(name).XMLDesc(flags))


def names(host, name="g1"):  # noqa: F811
    """({target: (disk's name, base name of the recorded file)}, [name of each interface])."""
    there = domain(host, name)
    macs = identity.nic_names(there)
    disks = {
        target: (one, identity.entry(there.record, one).path.rpartition("/")[2])
        for target, one in identity.disk_names(there).items()
    }
    return disks, [macs.get(nic.mac) for nic in there.interfaces]


@pytest.fixture
def guest(host, image):  # noqa: F811
    host.init(image=image, disk=None, disks=DISKS, interfaces=NICS)
    return host


def test_a_new_guest_has_the_names_that_were_requested(guest):
    disks = {"vda": ("system", "g1_system.raw"), "vdb": ("data", "g1_data.raw")}
    assert names(guest) == (disks, ["eth0", None, "eth1"])


def test_a_clone_has_the_names_of_its_original_and_macs_of_its_own(guest):
    guest.modules["virt.clone"]("g1", "g2")
    disks = {"vda": ("system", "g2_system.raw"), "vdb": ("data", "g2_data.raw")}
    assert names(guest, "g2") == (disks, ["eth0", None, "eth1"])
    macs = [nic.mac for one in ("g1", "g2") for nic in domain(guest, one).interfaces]
    assert len(set(macs)) == 6


def test_a_renamed_guest_keeps_the_names(guest):
    guest.modules["virt.rename"]("g1", "g2")
    disks = {"vda": ("system", "g2_system.raw"), "vdb": ("data", "g2_data.raw")}
    assert names(guest, "g2") == (disks, ["eth0", None, "eth1"])


def test_a_guest_made_before_names_were_recorded_gets_them_when_it_is_renamed(guest):
    before = domain(guest)
    before.record.devices = None
    guest.conn.defineXML(before.tostring())
    guest.modules["virt.rename"]("g1", "g2")
    disks = {"vda": ("system", "g2_system.raw"), "vdb": ("data", "g2_data.raw")}
    assert names(guest, "g2") == (disks, [None, None, None])


def test_a_revert_keeps_the_record_of_a_disk_made_since(guest):
    """The snapshot's record does not know it; the file is the guest's own all the same."""
    dom = guest.conn.lookupByName("g1")
    before = metadata.of_domain(dom)
    old = before.copy()
    for kind in (old.disks, old.devices.disks):
        for one in kind:
            if one.target == "vdb":
                kind.remove(one)
    old.entries.append(MetadataEntry(key="stale", value="1"))
    found = metadata.reverted(before, old)
    assert [(own.target, own.path) for own in found.disks] == [
        (own.target, own.path) for own in before.disks
    ]
    assert [one.name for one in found.devices.disks] == ["system", "data"]
    assert list(found.entries) == []


def test_a_disk_that_got_another_name_is_not_attached_twice_after_a_revert(guest):
    """The snapshot's record has the name that it had then, today's has the one of today."""
    virt, system = guest.modules, {"name": "system"}
    virt["virt.snapshot"]("g1", name="s1")
    virt["virt.update"]("g1", disks=[system, {"name": "logs", "target": "vdb"}])
    virt["virt.revert_snapshot"]("g1", "s1")
    before = domain(guest).tostring()
    for test in (True, False):
        with pytest.raises(errors.InvalidInput, match=r"g1_data.raw is already disk vdb of g1"):
            virt["virt.update"]("g1", disks=[system, {"name": "logs", "size": 4}], test=test)
    assert domain(guest).tostring() == before
    found = virt["virt.update"]("g1", disks=[system, {"name": "logs", "target": "vdb"}])
    assert found["definition"] is False
    assert identity.disk_names(domain(guest)) == {"vda": "system", "vdb": "logs"}


def test_a_file_is_no_second_disk_of_its_guest(guest):
    place = {"source_file": domain(guest).disks[1].source.file, "format": "raw"}
    twice = [{"name": name, **place} for name in ("one", "two")]
    with pytest.raises(errors.InvalidInput, match="is already disk vdb of g1"):
        guest.modules["virt.update"]("g1", disks=[{"name": "system"}, *twice])
    assert len(domain(guest).disks) == 2


def extra(name, **more):
    return {"name": name, "size": 4, "format": "raw", **more}


def test_a_new_disk_does_not_become_the_one_at_its_target(guest):
    before = domain(guest).tostring()
    update = guest.modules["virt.update"]
    listed = [DISKS[0], extra("logs", target="vdb", size=8)]
    for test in (True, False):
        with pytest.raises(errors.InvalidInput, match=r"disk logs: g1 has its disk data .* at vdb"):
            update("g1", disks=listed, test=test)
    assert domain(guest).tostring() == before
    assert (guest.images / "g1_data.raw").stat().st_size == 4 << 20
    update("g1", disks=[DISKS[0], {"name": "logs", "target": "vdb"}])
    assert identity.disk_names(domain(guest)) == {"vda": "system", "vdb": "logs"}
    update("g1", disks=listed)
    assert (guest.images / "g1_data.raw").stat().st_size == 8 << 20


def test_a_guest_without_names_takes_them_from_the_targets(guest):
    old = domain(guest)
    old.record.devices = None
    guest.conn.defineXML(old.tostring())
    guest.modules["virt.update"]("g1", disks=[DISKS[0], extra("logs", target="vdb")])
    assert identity.disk_names(domain(guest)) == {"vda": "system", "vdb": "logs"}


def without_data(guest):
    """As a revert to a time before the disk, or virsh detach-disk, leaves it."""
    old = domain(guest)
    old.disks.remove(old.disks[1])
    guest.conn.defineXML(old.tostring())


def test_a_name_outlives_another_disk_at_its_target(guest):
    without_data(guest)
    update = guest.modules["virt.update"]
    update("g1", disks=[DISKS[0], extra("logs")])
    assert identity.disk_names(domain(guest)) == {"vda": "system", "vdb": "logs"}
    (guest.images / "g1_data.raw").write_bytes(bytes(3 << 20) + b"x" * (1 << 20))
    update("g1", disks=[*DISKS, extra("logs")])
    assert identity.disk_names(domain(guest)) == {"vda": "system", "vdb": "logs", "vdc": "data"}
    assert domain(guest).disks[2].source.file == str(guest.images / "g1_data.raw")
    assert (guest.images / "g1_data.raw").read_bytes()[-1:] == b"x"
    found = update("g1", disks=[*DISKS, extra("logs")])
    assert found["definition"] is False


def test_a_foreign_disk_at_a_target_does_not_get_the_name(guest, tmp_path):
    foreign = tmp_path / "foreign.raw"
    foreign.write_bytes(bytes(4 << 20))
    there = domain(guest)
    there.disks[1].source.file = str(foreign)
    guest.conn.defineXML(there.tostring())
    update, before = guest.modules["virt.update"], domain(guest).tostring()
    larger = [DISKS[0], {**DISKS[1], "size": 8}]
    why = r"disk data: g1 was created with .*g1_data.raw, but has .*foreign.raw at vdb"
    for how in ({"disks": larger}, {"disks": larger, "test": True}, {"detach": ["data"]}):
        with pytest.raises(errors.InvalidInput, match=why):
            update("g1", **how)
    assert domain(guest).tostring() == before
    assert foreign.stat().st_size == 4 << 20
    accepted = {"name": "data", "source_file": str(foreign), "format": "raw"}
    update("g1", disks=[DISKS[0], accepted])
    found = update("g1", disks=DISKS)
    assert found["definition"] is False
    update("g1", detach=["data"])
    assert [disk.target for disk in domain(guest).disks] == ["vda"]


def test_a_foreign_disk_leaves_by_its_target_and_the_own_one_comes_back(guest, tmp_path):
    foreign = tmp_path / "foreign.raw"
    foreign.write_bytes(bytes(4 << 20))
    there = domain(guest)
    there.disks[1].source.file = str(foreign)
    guest.conn.defineXML(there.tostring())
    update = guest.modules["virt.update"]
    update("g1", detach=["vdb"])
    assert foreign.exists()
    with pytest.raises(errors.AlreadyExists, match="existing: True uses it"):
        update("g1", disks=DISKS)
    update("g1", disks=[DISKS[0], {**DISKS[1], "existing": True}])
    assert [disk.source.file for disk in domain(guest).disks] == [
        str(guest.images / f"g1_{name}.raw") for name in ("system", "data")
    ]


def test_a_layer_on_the_recorded_file_keeps_its_name(guest):
    base, layer = guest.images / "g1_data.raw", guest.images / "elsewhere.layer"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", layer]
    subprocess.run(argv, check=True)
    there = domain(guest)
    there.disks[1].source.file, there.disks[1].driver_type = str(layer), "qcow2"
    guest.conn.defineXML(there.tostring())
    assert guest.modules["virt.update"]("g1", disks=DISKS)["definition"] is False
    larger = [DISKS[0], {**DISKS[1], "size": 2 * DISKS[1]["size"]}]
    answer = guest.modules["virt.update"]("g1", disks=larger)
    assert (answer.get("warnings"), [one["path"] for one in answer["changes"]]) == (
        None, ["disks:vdb:size_bytes"],
    )  # fmt: skip
    assert guest.modules["virt.update"]("g1", disks=larger)["changes"] == []


@pytest.mark.parametrize("given", [{}, {"target": "vdb"}])
def test_a_highstate_after_a_revert_brings_the_later_disk_back(guest, given):
    """With its data: it was detached by the revert, and stayed in the record."""
    modules = guest.modules
    update, listed = modules["virt.update"], [*DISKS, extra("logs")]
    update("g1", disks=DISKS[:1], detach=["data"])
    (guest.images / "g1_data.raw").unlink()
    modules["virt.snapshot"]("g1", name="before")
    late = [DISKS[0], {**DISKS[1], **given}]
    update("g1", disks=late)
    path = guest.images / "g1_data.raw"
    path.write_bytes(bytes(3 << 20) + b"x" * (1 << 20))
    modules["virt.revert_snapshot"]("g1", "before")
    assert [disk.target for disk in domain(guest).disks] == ["vda"]
    opts = {**modules.opts, "states_dirs": [str(REPOSITORY / "_states")], "test": False}
    defined = salt.loader.states(opts, modules, {}, None)["virt.defined"]
    done = defined(name="g1", disks=late)
    assert done["result"] is True, done
    assert [disk.source.file for disk in domain(guest).disks][1:] == [str(path)]
    assert path.read_bytes()[-1:] == b"x"
    assert defined(name="g1", disks=late)["changes"] == {}
    update("g1", disks=listed)
    assert identity.disk_names(domain(guest)) == {"vda": "system", "vdb": "data", "vdc": "logs"}


def test_a_detached_disk_comes_back_only_as_an_existing_one(guest):
    update, path = guest.modules["virt.update"], guest.images / "g1_data.raw"
    path.write_bytes(b"x" * (4 << 20))
    update("g1", detach=["data"])
    for test in (True, False):
        with pytest.raises(errors.AlreadyExists, match=r"g1_data.raw already exists .* existing:"):
            update("g1", disks=DISKS, test=test)
    assert path.read_bytes() == b"x" * (4 << 20)
    for _ in range(2):
        update("g1", disks=[DISKS[0], {**DISKS[1], "existing": True}])
        assert identity.disk_names(domain(guest)) == {"vda": "system", "vdb": "data"}
    update("g1", detach=["data"])
    assert path.read_bytes() == b"x" * (4 << 20)
    guest.modules["virt.purge"]("g1")
    assert path.exists(), "it is no disk of the guest any more"


@pytest.fixture
def file(tmp_path):
    """{way to name it: path} of one file."""
    path = tmp_path / "f.raw"
    path.write_bytes(bytes(1 << 20))
    (tmp_path / "link.raw").symlink_to(path)
    (tmp_path / "hard.raw").hardlink_to(path)
    return tmp_path


def at(name, path, **more):
    return {"name": name, "source_file": str(path), "format": "raw", **more}


@pytest.mark.parametrize("other", ["f.raw", "link.raw", "hard.raw"])
def test_one_file_is_not_two_new_disks(guest, file, other):
    disks = [DISKS[0], at("one", file / "f.raw"), at("two", file / other)]
    for test in (True, False):
        with pytest.raises(errors.InvalidInput, match="one and two would use the same data"):
            guest.modules["virt.update"]("g1", disks=disks, test=test)
        with pytest.raises(errors.InvalidInput, match=r"the same (data|path)"):
            guest.init("g2", disk=None, disks=disks, test=test)
    assert len(domain(guest).disks) == 2
    shared = [{**one, "shareable": True} for one in disks[1:]]
    guest.modules["virt.update"]("g1", disks=[DISKS[0], *shared])
    assert len(domain(guest).disks) == 4


def test_another_name_of_a_guests_file_is_no_second_disk(guest, file):
    data = guest.images / "g1_data.raw"
    (file / "again.raw").symlink_to(data)
    (file / "inode.raw").hardlink_to(data)
    for name in ("again.raw", "inode.raw"):
        with pytest.raises(errors.InvalidInput, match="is already disk vdb of g1"):
            guest.modules["virt.update"]("g1", disks=[DISKS[0], at("two", file / name)])
    assert len(domain(guest).disks) == 2


def test_one_volume_is_not_two_new_disks(guest):
    there = {"pool": "default-pool", "source_file": "v1", "size": 1, "format": "raw"}
    disks = [{"name": name, **there} for name in ("one", "two")]
    with pytest.raises(errors.InvalidInput, match="one and two would use the same data"):
        guest.modules["virt.update"]("g1", disks=[DISKS[0], *disks])


def test_the_base_of_a_guests_disk_is_no_disk_of_its_own(guest):
    base, layer = guest.images / "g1_data.raw", guest.images / "g1_data.s1"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", layer]
    subprocess.run(argv, check=True)
    there = domain(guest)
    there.disks[1].source.file, there.disks[1].driver_type = str(layer), "qcow2"
    guest.conn.defineXML(there.tostring())
    update = guest.modules["virt.update"]
    for test in (True, False):
        with pytest.raises(errors.InvalidInput, match=r"vdb of g1 \(.*g1_data.s1\) is based on"):
            update("g1", disks=[*DISKS, at("two", base)], test=test)
    assert len(domain(guest).disks) == 2
    update("g1", disks=[*DISKS, at("two", base, read_only=True)])
    assert len(domain(guest).disks) == 3
