"""Definitions of other tools: settings that are not requested are kept."""

import pytest

from saltvirt.design import caps, domain
from saltvirt.design.context import GuestInputs
from saltvirt.design.source import Source
from saltvirt.diff.changes import changes
from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.spec import guest
from saltvirt.xml.domain.cputune import VcpuPin
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.memory_backing import HugePage
from saltvirt.xml.domain.vcpu import VcpuState
from tests import golden

CAPS = caps.parse(golden.read("caps/qemu.xml"), golden.read("caps/qemu-kvm-domain.xml"))
XML = """<domain type='kvm'><name>g1</name>{memory}
<vcpu>4</vcpu><os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>
<cpu>{cpu}</cpu><devices>{devices}</devices></domain>"""
MEMORY = "<memory unit='KiB'>{0}</memory><currentMemory unit='KiB'>{0}</currentMemory>"
CELL = "<numa><cell id='0' cpus='0-3' memory='1048576' unit='KiB'/></numa>"
DIMM = "<memory model='{}'><target><size unit='KiB'>{}</size><node>0</node></target></memory>"
BOTH = (
    DIMM.format("dimm", 524288)
    + DIMM.format("virtio-mem", 2097152)
    + DIMM.format("sgx-epc", 65536).replace("model='sgx", "access='shared' model='sgx")
)
TOPOLOGY = "<topology sockets='1' dies='1' clusters='2' cores='2' threads='1'/>"


GIB = MEMORY.format(1048576)


def there(memory=GIB, cpu="", devices=""):
    return Domain.fromstring(XML.format(memory=memory, cpu=cpu, devices=devices))


def amended(actual, **arguments):
    return domain.amend(guest.parse("g1", update=True, **arguments), actual, CAPS, GuestInputs())


STRANGE = {
    "modules": there(MEMORY.format(3670016), CELL, BOTH),
    "another sum": there(MEMORY.format(2097152), CELL),
    "clusters": there(cpu=TOPOLOGY),
    "cells without id": there(cpu=CELL.replace("id='0' ", "")),
    "no memory": there(memory="<currentMemory unit='KiB'>1024</currentMemory>"),
    "a balloon that is none": there(
        MEMORY.format(1048576).replace("y unit='KiB'>1048576</c", "y unit='KiB'>1024</c"),
        devices="<memballoon model='none'/>",
    ),
    "a disk of the host by its place": there(
        devices="<hostdev mode='subsystem' type='scsi'><source><adapter name='scsi_host0'/>"
        "<address bus='0' target='0' unit='0'/></source></hostdev>"
    ),
    "a word where a number is": there(devices="<graphics type='vnc' port='auto'/>"),
    "where a display listens, as libvirt once wrote it": there(
        devices="<graphics type='vnc' listen='127.0.0.1'/>"
    ),
    "a display that listens nowhere": there(devices="<graphics type='vnc'/>"),
    "more sockets": there(cpu="<topology sockets='5' cores='2' threads='1'/>"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_nothing_asked_is_nothing_changed(name):
    actual = STRANGE[name]
    for arguments in ({}, {"title": "a"}):
        wanted = amended(actual, **arguments)
        assert [c.path for c in changes(wanted, actual)] == [*arguments]


def test_where_a_display_listens_is_the_same_in_both_ways_to_write_it():
    old = there(devices="<graphics type='vnc' listen='127.0.0.1'/>")
    new = there(
        devices="<graphics type='vnc'><listen type='address' address='127.0.0.1'/></graphics>"
    )
    other = there(devices="<graphics type='vnc' listen='127.0.0.2'/>")
    nowhere = there(devices="<graphics type='vnc'/>")
    assert changes(new, old) == changes(old, new) == []
    assert [one.path for one in changes(new, other)] == ["graphics:vnc:listens"]
    assert [one.path for one in changes(new, nowhere)] == ["graphics:vnc:listens"]


def test_memory_modules_count():
    actual = there(MEMORY.format(3670016), CELL, BOTH)
    assert changes(amended(actual, cpu=4), actual) == []
    larger = {0: {"cpus": "0-3", "memory": "2g"}}
    wanted = amended(actual, cpu={"numa": larger})
    assert wanted.memory_kib == 2097152 + 524288 + 2097152
    for mem in ("2g", "4.5g"):
        assert amended(actual, mem=mem, cpu={"numa": larger}).memory_kib == wanted.memory_kib
    with pytest.raises(InvalidInput, match="is not what cpu:numa makes"):
        amended(actual, mem="3g", cpu={"numa": larger})


def test_clusters_make_cpus_too():
    actual = there(cpu=TOPOLOGY)
    assert changes(amended(actual, cpu=4), actual) == []
    eight = amended(actual, cpu=8).cpu
    assert (eight.sockets, eight.clusters, eight.cores) == (2, 2, 2)
    five = amended(actual, cpu=5).cpu
    assert (five.sockets, five.clusters, five.cores) == (5, 1, 1)
    said = {"sockets": 1, "clusters": 2, "cores": 4, "threads": 1}
    assert amended(actual, cpu={"maximum": 8, "topology": said}).cpu.cores == 4
    with pytest.raises(InvalidInput, match="makes 8 CPUs"):
        amended(actual, cpu={"maximum": 4, "topology": said})


def test_a_cell_is_known_by_its_place_where_it_has_no_number():
    actual = there(cpu=CELL.replace("id='0' ", ""))
    wanted = amended(actual, cpu={"numa": {0: {"memory": "2g"}}})
    (cell,) = wanted.cpu.cells
    assert (cell.id, cell.memory_kib, cell.cpus) == (0, 2097152, "0-3")
    assert amended(there(memory=""), mem=64).memory_kib == 65536


NIC = "<interface type='{}'><mac address='52:54:00:00:00:0{}'/><source {}/></interface>"
NICS = NIC.format("network", 1, "network='lan'") + NIC.format("direct", 2, "dev='eth1' mode='vepa'")


def test_an_interface_that_is_named_by_its_mac_alone_stays_where_it_is():
    actual = there(devices=NICS)
    named = [{"name": f"n{at}", "mac": f"52:54:00:00:00:0{at}"} for at in (1, 2)]
    assert changes(amended(actual, interfaces=named), actual) == []
    down = [{**named[0], "link": False}, named[1]]
    found = [change.path for change in changes(amended(actual, interfaces=down), actual)]
    assert found == ["nics:52:54:00:00:00:01:link_state"]
    new = {"name": "n3", "mac": "52:54:00:00:00:03"}
    wanted = amended(actual, interfaces=[*named, new]).interfaces
    assert [(nic.type, nic.source) for nic in wanted] == [
        ("network", "lan"), ("direct", "eth1"), ("bridge", "br0"),
    ]  # fmt: skip


NVME = (
    "<disk type='nvme' device='disk'><driver name='qemu' type='raw'/>"
    "<source type='pci' managed='yes' namespace='1'>"
    "<address domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></source>"
    "<target dev='vda' bus='virtio'/></disk>"
)


def test_a_disk_whose_source_we_cannot_name_keeps_it():
    actual = there(devices=NVME)
    (disk,) = actual.disks
    assert Source.of_disk(disk) is None
    kept = guest.parse("g1", update=True, disks=[{"name": "d", "target": "vda", "cache": "none"}])
    wanted = domain.amend(kept, actual, CAPS, GuestInputs(sources={"d": Source.of_disk(disk)}))
    assert [change.path for change in changes(wanted, actual)] == ["disks:vda:cache"]
    assert wanted.disks[0].source.node.find("address") is not None


def test_huge_pages_of_the_hosts_own_size_take_the_place_of_others():
    actual = there()
    actual.memory_backing.hugepages = True
    actual.memory_backing.pages.append(HugePage(size=1048576, unit="KiB"))
    wanted = amended(actual, mem={"hugepages": True})
    assert wanted.memory_backing.hugepages and not len(wanted.memory_backing.pages)
    assert changes(wanted, actual)
    assert changes(amended(wanted, mem={"hugepages": True}), wanted) == []


def test_the_clock_is_said_as_a_whole():
    actual = there()
    clock = "<clock offset='absolute' start='1234567890'/>"
    actual = Domain.fromstring(actual.tostring().replace("</vcpu>", f"</vcpu>{clock}"))
    assert amended(actual, clock={"utc": False}).clock.node.attrib == {"offset": "localtime"}
    assert amended(actual).clock.node.get("start") == "1234567890"


def test_nodes_that_are_named_are_not_chosen_by_the_host():
    actual = there()
    actual.numatune.mode, actual.numatune.placement = "strict", "auto"
    wanted = amended(actual, numatune={"memory": {"nodeset": "0"}})
    assert (wanted.numatune.nodeset, wanted.numatune.placement) == ("0", None)
    assert [c.path for c in changes(wanted, actual)] == ["numatune:nodeset"]


def test_an_interface_of_another_type_takes_nothing_of_its_source_along():
    nic = (
        "<interface type='ethernet'><mac address='52:54:00:00:00:01'/>"
        "<source>{}</source></interface>"
    )
    actual = there(devices=nic.format("<ip address='192.0.2.1' prefix='24'/>"))
    moved = {"name": "n", "mac": "52:54:00:00:00:01", "type": "bridge", "source": "br9"}
    (wanted,) = amended(actual, interfaces=[moved]).interfaces
    assert (wanted.bridge, list(wanted.node.find("source"))) == ("br9", [])


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("exe", {"boot_dev": "hd"}),
        ("exe", {"boot": {"efi": True}}),
        ("exe", {"boot": {"kernel": "/k", "initrd": "/i"}}),
        ("xen", {"boot_dev": "network hd"}),
        ("xen", {"boot": {"efi": True}}),
    ],
)
def test_what_has_no_firmware_is_given_none(kind, asked):
    host = caps.Caps(caps.HostCapabilities(), (caps.CapsGuest(kind, "x86_64", ("xen",)),))
    actual = Domain.fromstring(
        f"<domain type='xen'><name>g1</name><os><type arch='x86_64'>{kind}</type></os></domain>"
    )
    with pytest.raises(Unsupported, match="boot"):
        domain.amend(guest.parse("g1", update=True, **asked), actual, host, GuestInputs())


def test_a_cpu_model_makes_void_what_was_said_of_another_mode():
    actual = there()
    actual.cpu.mode, actual.cpu.migratable, actual.cpu.check = "host-passthrough", True, "none"
    wanted = amended(actual, cpu={"model": "Nehalem"})
    assert (wanted.cpu.mode, wanted.cpu.migratable) == ("custom", None)


def test_a_cpu_that_is_switched_off_can_be_plugged_in_again():
    actual = there()
    for number in range(4):
        state = VcpuState(id=number, enabled=True, hotpluggable=False, plug_order=number + 1)
        actual.vcpus.append(state)
    wanted = amended(actual, cpu={"current": 1})
    found = [(s.enabled, s.hotpluggable, s.plug_order) for s in wanted.vcpus]
    assert found == [(True, False, 1), *[(False, True, None)] * 3]
    assert changes(amended(wanted, cpu={"current": 1}), wanted) == []


def test_a_display_that_goes_leaves_the_order_of_the_other_devices():
    channel = "<channel type='{}'><target type='virtio' name='{}'/></channel>"
    spice = channel.format("spicevmc", "com.redhat.spice.0")
    ours, graphics = channel.format("unix", "a.b.0"), "<graphics type='spice'/>"
    between = "<rng model='virtio'><backend model='random'>/dev/random</backend></rng>"
    actual = there(devices=ours + graphics + spice + between + channel.format("pty", "c.d.0"))
    wanted = amended(actual, graphics="none")
    tags = [node.tag for node in wanted.node.find("devices")]
    assert tags == ["channel", "rng", "channel"]
    assert [item.name for item in wanted.channels] == ["a.b.0", "c.d.0"]


def test_tuning_of_cpus_goes_only_when_their_number_is_asked_for():
    actual = there()
    actual.cputune.vcpupins.append(VcpuPin(vcpu=9, cpuset="0"))
    assert len(amended(actual, cpu={"tuning": {"shares": 7}}).cputune.vcpupins) == 1
    assert len(amended(actual, cpu=4).cputune.vcpupins) == 0


def test_what_is_said_of_other_cpus_is_left_by_an_edit_of_something_else():
    """A number that was not requested needs nothing to agree with it, however it was before."""
    actual = there(cpu="<topology sockets='5' cores='2' threads='1'/>")
    actual.vcpus = [VcpuState(id=0, enabled=True), VcpuState(id=1, enabled=False, plug_order=2)]
    actual.cputune.vcpupins.append(VcpuPin(vcpu=9, cpuset="0"))
    wanted = amended(actual, cpu={"iothreads": 2, "tuning": {"shares": 7}})
    assert {c.path for c in changes(wanted, actual)} == {"iothreads", "cputune:shares"}
    assert (wanted.cpu.sockets, wanted.vcpus[1].plug_order) == (5, 2)
    assert len(wanted.cputune.vcpupins) == 1


def test_an_interface_that_was_passed_through_becomes_one_of_a_bridge_in_whole():
    source = "<source><address type='pci' bus='3'/></source><driver name='vfio'/>"
    mac = "<mac address='52:54:00:00:00:01'/>"
    actual = there(devices=f"<interface type='hostdev' managed='yes'>{mac}{source}</interface>")
    nic = {"name": "n", "mac": "52:54:00:00:00:01", "type": "bridge", "source": "br0"}
    nic = amended(actual, interfaces=[nic]).interfaces[0]
    assert nic.node.attrib == {"type": "bridge"}
    assert sorted(child.tag for child in nic.node) == ["mac", "source"]


def test_boot_dev_takes_the_place_of_all_that_devices_say_of_it():
    mac = "<mac address='52:54:00:00:00:01'/>"
    boot = "<boot order='1' loadparm='2'/>"
    actual = there(devices=f"<interface type='user'>{mac}{boot}</interface>")
    assert amended(actual, boot_dev="hd").interfaces[0].node.find("boot") is None
    actual.bootloader = "/usr/bin/pygrub"
    with pytest.raises(Unsupported, match="boots with the bootloader /usr/bin/pygrub"):
        amended(actual, boot_dev="hd")


@pytest.mark.parametrize(
    "display",
    ["<graphics type='vnc' listen='127.0.0.1'/>",
     "<graphics type='vnc'><listen type='address' address='127.0.0.1'/></graphics>"],
)  # fmt: skip
def test_an_address_that_a_display_has_is_left_as_it_is_said(display):
    actual = there(devices=display)
    wanted = amended(actual, graphics={"type": "vnc", "listen": "127.0.0.1"})
    before, after = (item.graphics[0].tostring() for item in (actual, wanted))
    assert before == after
    moved = amended(actual, graphics={"type": "vnc", "listen": "10.0.0.1"})
    assert moved.graphics[0].listens[0].address == "10.0.0.1"
