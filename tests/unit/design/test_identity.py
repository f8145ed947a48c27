"""Names of devices in the record: they are kept when files, targets or MAC addresses change."""

import pytest

from saltvirt.design import identity
from saltvirt.design.source import Source
from saltvirt.spec.disk import DiskSpec
from saltvirt.xml.domain.domain import Domain

DOMAIN = """<domain type='kvm'><name>web1</name><metadata>
<saltvirt:guest xmlns:saltvirt='https://saltproject.io/xmlns/salt-virt/1' version='1'>
{}</saltvirt:guest></metadata><devices>{}</devices></domain>"""
DISK = (
    "<disk type='file' device='disk'><source file='{}'/><target dev='{}'/>"
    "<driver name='qemu' type='qcow2'/></disk>"
)
NIC = "<interface type='network'><mac address='{}'/><source network='lan'/></interface>"
A, B, C = "52:54:00:00:00:0a", "52:54:00:00:00:0b", "52:54:00:00:00:0c"


def guest(*disks, nics=(), record=""):
    devices = [DISK.format(*disk) for disk in disks] + [NIC.format(mac) for mac in nics]
    return Domain.fromstring(DOMAIN.format(record, "".join(devices)))


def test_a_name_holds_when_the_file_or_the_target_is_another():
    domain = guest(("/i/web1_system.qcow2", "vda"), ("/i/web1_data.qcow2", "vdb"))
    identity.upgrade(domain)
    assert identity.disk_names(domain) == {"vda": "system", "vdb": "data"}
    system, data = domain.disks
    system.source.file = "/i/web1_system.snap1"  # an external snapshot
    data.target = "sda"  # virsh edit
    assert identity.disk_names(domain) == {"vda": "system", "sda": "data"}
    assert identity.disk_named(domain, "data").target == "sda"


def test_the_place_comes_before_the_target():
    domain = guest(("/i/web1_system.qcow2", "vda"), ("/i/web1_data.qcow2", "vdb"))
    identity.upgrade(domain)
    first, second = domain.disks
    first.target, second.target = "vdb", "vda"
    assert identity.disk_names(domain) == {"vdb": "system", "vda": "data"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/i/web1_system.qcow2", "system"),
        ("/i/web1_a.b.raw", "a.b"),
        ("/i/web1_system.snap1", "system"),  # on top of it
        ("/i/web1_vda.qcow2", None),  # named after the target: nobody knew its name
        ("/i/old_system.qcow2", None),  # renamed on shared storage
        ("/i/web10_system.qcow2", None),
        ("/i/web1_.qcow2", None),
    ],
)
def test_what_a_file_name_proves_of_a_disk_without_a_record(path, name):
    domain = guest((path, "vda"))
    assert not identity.has_device_names(domain)
    identity.upgrade(domain)
    assert identity.disk_names(domain) == ({"vda": name} if name else {})
    assert identity.has_device_names(domain) == bool(name)


def test_a_copy_has_the_names_for_its_own_files_and_macs():
    old = guest(("/i/web1_system.qcow2", "vda"), ("/i/x.img", "vdb"), nics=(A, B))
    identity.upgrade(old)
    identity.name_nic(old.record, "eth1", B.upper())
    new = guest(("/i/web2_vda.qcow2", "vda"), ("/i/web2_vdb.img", "vdb"), nics=(C, A))
    identity.carry(old, new, {A: C, B: A})
    assert identity.disk_names(new) == {"vda": "system"}
    assert identity.entry(new.record, "system").path == "/i/web2_vda.qcow2"
    assert identity.nic_names(new) == {A: "eth1"}


def test_what_is_named_already_is_not_named_by_another():
    new = guest(("/i/a", "vda"), ("/i/b", "vdb"), nics=(A,))
    identity.name_disk(new.record, "system", new.disks[1])
    identity.name_nic(new.record, "eth0", A)
    old = guest(("/i/web1_system.raw", "vda"), ("/i/web1_data.raw", "vdb"), nics=(A,))
    identity.name_nic(old.record, "lan", A)
    identity.fill(old, new)
    assert identity.disk_names(new) == {"vdb": "system"}
    assert identity.nic_names(new) == {A: "eth0"}


def test_a_target_or_a_mac_has_one_name():
    domain = guest(("/i/a", "vda"), nics=(A,))
    for name in ("one", "two"):
        identity.name_disk(domain.record, name, domain.disks[0])
        identity.name_nic(domain.record, name, A)
    assert identity.disk_names(domain) == {"vda": "two"}
    assert len(domain.record.devices.disks) == len(domain.record.devices.interfaces) == 1


def test_names_of_what_is_gone_go():
    domain = guest(("/i/web1_system.raw", "vda"), ("/i/web1_data.raw", "vdb"), nics=(A,))
    identity.upgrade(domain)
    identity.name_nic(domain.record, "eth0", A)
    domain.disks.remove(domain.disks[1])
    domain.interfaces = []
    identity.forget_disks(domain)
    identity.forget_nics(domain)
    assert [named.name for named in domain.record.devices.disks] == ["system"]
    assert list(domain.record.devices.interfaces) == []
    assert identity.has_device_names(domain)


def test_a_name_that_is_recorded_again_keeps_its_place_in_the_record():
    domain = guest(("/i/web1_system.qcow2", "vda"), ("/i/a.iso", "hda"), nics=(A, B))
    system, drive = domain.disks
    identity.name_disk(domain.record, "system", system)
    identity.name_disk(domain.record, "cd", drive)
    identity.name_nic(domain.record, "eth0", A)
    identity.name_nic(domain.record, "eth1", B)
    before = domain.tostring()
    identity.name_nic(domain.record, "eth0", A)
    identity.name_disk(domain.record, "system", system, Source.of_disk(system))
    assert domain.tostring() == before
    # another place in a pool leaves nothing of the one before
    pool = Source(pool="p", volume="v")
    identity.name_disk(domain.record, "system", system, pool)
    assert [named.name for named in domain.record.devices.disks] == ["system", "cd"]
    assert identity.named_locations(identity.entry(domain.record, "system")) == {
        ("volume", "p", "v")
    }


def test_a_medium_takes_no_name_to_another_drive():
    domain = guest(("/i/a.iso", "sda"), ("/i/b.iso", "sdb"))
    first, second = domain.disks
    first.device = second.device = "cdrom"
    second.source = None
    identity.name_disk(domain.record, "cd1", first)
    identity.name_disk(domain.record, "cd2", second)
    names = {"sda": "cd1", "sdb": "cd2"}
    second.source.file = "/i/a.iso"  # virsh change-media
    for medium in ("/i/a.iso", None):
        first.source = None
        first.source.file = medium
        assert identity.disk_names(domain) == names
    # as an update records it
    identity.name_disk(domain.record, "cd1", first)
    identity.name_disk(domain.record, "cd2", second, Source(path="/i/a.iso"))
    assert identity.disk_names(domain) == names
    assert identity.named_locations(identity.entry(domain.record, "cd1")) == set()


@pytest.mark.parametrize("recorded, expected", [("cd1", {}), (None, {"new": "sda"})])
def test_a_new_drive_takes_the_place_of_none_that_has_a_name(recorded, expected):
    domain = guest(("/i/a.iso", "sda"))
    domain.disks[0].device = "cdrom"
    if recorded:
        identity.name_disk(domain.record, recorded, domain.disks[0])
    new = DiskSpec.parse({"name": "new", "device": "cdrom", "source_file": "/i/b.iso"}, "disks")
    assert identity.find_disks([new], domain, lambda _spec, _disk: False) == expected
