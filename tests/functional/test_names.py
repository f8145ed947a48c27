"""The record of device names, after each verb that makes or changes a guest."""

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

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
