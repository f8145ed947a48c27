"""Guests that Salt 3007 made: the same arguments again change nothing.

Written down here is what libvirt 9.0 had of them; the devices of each are its own.
"""

import pytest

from saltvirt.design import caps, domain
from saltvirt.design.changes import changes
from saltvirt.design.context import Given
from saltvirt.design.source import Source
from saltvirt.spec import guest
from saltvirt.xml.domain import Domain
from tests import golden

CAPS = caps.parse(golden.read("caps/qemu.xml"), golden.read("caps/qemu-kvm-domain.xml"))
SYSTEM = Source(path="/srv/salt-images/g1_system.qcow2", format="qcow2")
XML = """<domain type='kvm'><name>g1</name><uuid>5dde2424-7483-4008-af40-e4b0eabf27e7</uuid>
<memory unit='KiB'>65536</memory><currentMemory unit='KiB'>65536</currentMemory>
<vcpu placement='static'>1</vcpu>
<os><type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type><boot dev='hd'/></os>
<features><acpi/><apic/><pae/></features>
{settings}
<on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none' io='native'/>
<source file='/srv/salt-images/g1_system.qcow2'/><target dev='vda' bus='virtio'/></disk>
{devices}
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
<memballoon model='virtio'/></devices></domain>"""
UTC = "<clock offset='utc'/>"
DRIVE = """<disk type='{}' device='cdrom'>
<driver name='qemu' type='raw' cache='none' io='native'/>{}
<target dev='hda' bus='ide'/><readonly/></disk>"""
BY_HTTP = "<source protocol='http' name='/a.iso'><host name='example.org' port='80'/></source>"
CD = {"name": "cd", "device": "cdrom"}


def there(devices="", settings=UTC):
    return Domain.fromstring(XML.format(devices=devices, settings=settings))


def amended(actual, **arguments):
    spec = guest.parse("g1", update=True, **arguments)
    return domain.amend(spec, actual, CAPS, Given(sources={"system": SYSTEM}))


def found(actual, **arguments):
    return [(c.path, c.old, c.new) for c in changes(amended(actual, **arguments), actual)]


@pytest.mark.parametrize(
    ("drive", "medium"),
    [
        (("file", ""), {}),
        (("file", ""), {"source_file": None}),
        (("file", ""), {"io": "native"}),
        (("file", "<source file='/iso/a.iso'/>"), {"source_file": "/iso/a.iso"}),
        (("network", BY_HTTP), {"source_file": "http://example.org/a.iso"}),
        (("network", BY_HTTP), {"source_file": "http://example.org/a.iso", "io": "native"}),
    ],
)
def test_a_drive_with_native_io_stays(drive, medium):
    actual = there(DRIVE.format(*drive))
    assert found(actual, disks=[{"name": "system", "size": 8}, {**CD, **medium}]) == []


@pytest.mark.parametrize(
    ("drive", "medium"),
    [
        (("file", ""), {"source_file": "http://example.org/a.iso"}),
        (("file", "<source file='/iso/a.iso'/>"), {}),
        (("network", BY_HTTP), {"source_file": "/iso/a.iso"}),
    ],
)
def test_a_drive_with_native_io_gets_another_medium(drive, medium):
    actual = there(DRIVE.format(*drive))
    wanted = amended(actual, disks=[{"name": "system"}, {**CD, **medium}])
    assert [change.action for change in changes(wanted, actual)] == ["medium"]
    assert (wanted.disks[1].io, wanted.disks[1].cache) == ("native", "none")
