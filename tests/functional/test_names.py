"""The record of device names, after each verb that makes or changes a guest."""

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.design import identity
from saltvirt.host.domain import metadata
from saltvirt.xml.domain import Domain
from saltvirt.xml.metadata import Entry
from tests.functional.test_init import host, image  # noqa: F401

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
    old.entries.append(Entry(key="stale", value="1"))
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
        with pytest.raises(errors.InvalidInput, match=r"g1_data.raw is disk vdb of g1 already"):
            virt["virt.update"]("g1", disks=[system, {"name": "logs", "size": 4}], test=test)
    assert domain(guest).tostring() == before
    found = virt["virt.update"]("g1", disks=[system, {"name": "logs", "target": "vdb"}])
    assert found["definition"] is False
    assert identity.disk_names(domain(guest)) == {"vda": "system", "vdb": "logs"}


def test_a_file_is_no_second_disk_of_its_guest(guest):
    place = {"source_file": domain(guest).disks[1].source.file, "format": "raw"}
    twice = [{"name": name, **place} for name in ("one", "two")]
    with pytest.raises(errors.InvalidInput, match="is disk vdb of g1 already"):
        guest.modules["virt.update"]("g1", disks=[{"name": "system"}, *twice])
    assert len(domain(guest).disks) == 2
