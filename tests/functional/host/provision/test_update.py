"""virt.update with libvirt's test driver: the stored definition; the lab tests live changes."""

import errno
import hashlib
import os
import shutil
import threading
import time
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.design import identity
from saltvirt.host.domain import guest_lock, metadata
from saltvirt.host.migration import reservations
from saltvirt.host.provision import (
    disk_build,
    disk_journal,
    disks,
    guest_builder,
    kernels,
    pool_disk,
    reservation,
)
from saltvirt.host.storage import pool_source, usage
from saltvirt.spec.boot import BootSpec
from saltvirt.system import file_lock
from saltvirt.xml.devices.interface import Interface
from saltvirt.xml.domain.domain import Domain
from tests.functional import asking
from tests.functional.host.provision.test_init import MIB, host, image, info  # noqa: F401

SYSTEM = {"name": "system", "size": 16, "format": "raw"}


@pytest.fixture
def guest(host, image):  # noqa: F811
    """(update function, definition as a tree, host) of a stopped guest."""
    host.init(cpu=2, mem=128, image=image, disks=[SYSTEM])

    def update(**arguments):
        done = host.modules["virt.update"]("g1", **arguments)
        if not arguments.get("test"):
            again = host.modules["virt.update"]("g1", **arguments)
            assert (again["definition"], again["changes"]) == (False, [])
        return done

    def tree():
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE
        return ET.fromstring(host.conn.lookupByName("g1").XMLDesc(flags))

    host.update, host.tree, host.image = update, tree, image
    return host


def sources(tree):
    return [node.get("file") for node in tree.iterfind("devices/disk/source")]


def test_nothing_asked_is_nothing_changed(guest):
    before = guest.conn.lookupByName("g1").XMLDesc()
    assert guest.update()["definition"] is False
    assert guest.conn.lookupByName("g1").XMLDesc() == before


def test_memory_and_cpus_show_in_the_definition(guest):
    status = guest.update(cpu=4, mem=256)
    assert (status["cpu"], status["mem"]) == (True, True)
    tree = guest.tree()
    assert tree.findtext("memory") == str(256 * 1024)
    assert tree.findtext("currentMemory") == str(256 * 1024)
    assert tree.findtext("vcpu") == "4"


def test_test_says_what_would_change_and_touches_nothing(guest):
    before = guest.conn.lookupByName("g1").XMLDesc()
    status = guest.update(mem=256, disks=[SYSTEM, {"name": "data", "size": 4}], test=True)
    assert {change["path"] for change in status["changes"]} >= {"memory_kib", "disks:vdb"}
    assert guest.conn.lookupByName("g1").XMLDesc() == before
    assert [path.name for path in guest.images.iterdir()] == ["g1_system.raw"]


def test_a_new_disk_is_made_and_goes_with_the_guest(guest):
    status = guest.update(disks=[SYSTEM, {"name": "data", "size": 4, "format": "raw"}])
    data = guest.images / "g1_data.raw"
    assert len(status["disk"]["attached"]) == 1
    assert data.stat().st_size == 4 * MIB
    assert sources(guest.tree()) == [str(guest.images / "g1_system.raw"), str(data)]
    guest.modules["virt.purge"]("g1")
    assert list(guest.images.iterdir()) == []


def test_a_disk_on_another_bus_is_still_the_guests_own(guest):
    guest.update(disks=[{**SYSTEM, "model": "scsi"}])
    disk = guest.tree().find("devices/disk")
    assert (disk.find("target").attrib, sources(guest.tree())) == (
        {"dev": "sda", "bus": "scsi"},
        [str(guest.images / "g1_system.raw")],
    )
    guest.modules["virt.purge"]("g1")
    assert list(guest.images.iterdir()) == []


@pytest.mark.parametrize("runs", [False, True])
def test_a_disk_of_no_format_is_what_its_definition_says(guest, runs):
    """It is made as qcow2; libvirt and QEMU take one of which no format is said for raw."""
    if runs:
        guest.conn.lookupByName("g1").create()  # this driver attaches nothing: it comes later
    guest.update(disks=[SYSTEM, {"name": "data", "size": 8}])
    path = str(guest.images / "g1_data.qcow2")
    assert (info(path)["format"], info(path)["virtual-size"]) == ("qcow2", 8 * MIB)
    assert guest.tree().find("devices/disk[2]/driver").get("type") == "qcow2"
    guest.update(disks=[SYSTEM, {"name": "data", "size": 12}])
    assert info(path)["virtual-size"] == 12 * MIB


@pytest.fixture
def died(guest, monkeypatch):
    """The Note of an update of g1 that died when it was about to make the disk ``data``."""
    path = str(guest.images / "g1_data.raw")
    work = disk_build.DiskBuild(None, make=True, format="raw", path=path)
    with monkeypatch.context() as patch:
        patch.setattr(metadata, "worker", lambda: "1:0:gone")
        note = disk_journal.DiskJournal("g1", "virt.update", [work])
    yield note
    note.end()


DATA = {"name": "data", "size": 4, "format": "raw"}


def test_what_an_update_that_died_has_made_goes_before_the_next(guest, died):
    path = guest.images / "g1_data.raw"
    path.write_bytes(b"half")
    died.mark(path)
    told = asking.answer(guest.modules, "virt.leftovers")["orphaned_disks"]
    assert told == {"g1": {"operation": "virt.update", "disks": [str(path)], "unsure": {}}}
    assert guest.modules["virt.remove_made"]("g1", test=True) == {"delete": [str(path)], "keep": {}}
    assert path.exists()
    guest.update(disks=[SYSTEM, DATA])
    assert path.stat().st_size == 4 * MIB
    assert asking.answer(guest.modules, "virt.leftovers")["orphaned_disks"] == {}


def test_what_somebody_else_put_there_stays_and_is_named(guest, died):
    path = guest.images / "g1_data.raw"
    path.write_bytes(b"theirs")
    made = asking.answer(guest.modules, "virt.leftovers")["orphaned_disks"]["g1"]
    assert made["disks"] == []
    assert "find out who uses it" in made["unsure"][str(path)]
    with pytest.raises(errors.VirtError, match=r"g1_data.raw stays: it cannot be proven"):
        guest.modules["virt.remove_made"]("g1")
    with pytest.raises(errors.VirtError, match=r"g1_data.raw already exists"):
        guest.modules["virt.update"]("g1", disks=[SYSTEM, DATA])
    assert path.read_bytes() == b"theirs"
    assert asking.answer(guest.modules, "virt.leftovers")["orphaned_disks"]["g1"] == made, (
        "it is still named"
    )


def test_what_another_guest_uses_by_now_is_no_leftover(guest, died):
    path = guest.images / "g1_data.raw"
    path.write_bytes(bytes(MIB))
    died.mark(path)
    guest.init("g2", disks=[{"name": "x", "source_file": str(path), "format": "raw"}])
    assert asking.answer(guest.modules, "virt.leftovers")["orphaned_disks"] == {}
    assert guest.modules["virt.remove_made"]("g1") is True
    assert path.exists()


def test_what_cannot_be_written_down_is_not_made(guest, monkeypatch):
    monkeypatch.setattr(disk_journal, "FOLDER", f"{guest.image}/making")  # no folder can be there
    for why in ("cannot be read", "cannot record the disks of g1"):
        with pytest.raises(errors.VirtError, match=why):
            guest.modules["virt.update"]("g1", disks=[SYSTEM, DATA])
        monkeypatch.setattr(disk_journal, "read", lambda _name: None)
    assert [path.name for path in guest.images.iterdir()] == ["g1_system.raw"]


def test_the_second_name_of_a_disk_in_use_is_not_emptied(guest):
    """Whose making was killed between its two names has a part that is the disk itself."""
    (guest.images / "used.raw").write_bytes(b"in use")
    (guest.images / ".g1_data.raw.part").hardlink_to(guest.images / "used.raw")
    guest.update(disks=[SYSTEM, DATA])
    assert (guest.images / "used.raw").read_bytes() == b"in use"
    assert not list(guest.images.glob(".*"))


def test_a_detached_disk_is_kept(guest):
    guest.update(disks=[], detach=["system"])
    assert sources(guest.tree()) == []
    assert (guest.images / "g1_system.raw").exists()


def test_without_detach_no_disk_goes(guest):
    both = [SYSTEM, {"name": "data", "size": 4, "format": "raw"}]
    guest.update(disks=both)
    for fewer in ([SYSTEM], both[1:], []):
        assert guest.update(disks=fewer, detach=False)["definition"] is False
    other = {"name": "other", "target": "vdb", "source_file": guest.image, "format": "raw"}
    before = guest.conn.lookupByName("g1").XMLDesc()
    with pytest.raises(
        errors.VirtError, match=r"g1_data.raw would be detached from vdb: detach=True"
    ):
        guest.update(disks=[SYSTEM, other], detach=False)
    assert guest.conn.lookupByName("g1").XMLDesc() == before
    status = guest.update(
        disks=[SYSTEM, {"name": "more", "size": 4, "format": "raw"}], detach=False
    )
    assert [change["path"] for change in status["changes"]] == ["disks:vdc"]
    guest.modules["virt.purge"]("g1")
    assert list(guest.images.iterdir()) == []


DATA_TOO = [SYSTEM, {"name": "data", "size": 4, "format": "raw"}]


def test_a_list_without_the_root_disk_adds_to_it(guest):
    """The natural call for one more disk took the root disk away."""
    guest.update(disks=DATA_TOO[1:])
    names = ["g1_system.raw", "g1_data.raw"]
    assert sources(guest.tree()) == [str(guest.images / name) for name in names]


@pytest.mark.parametrize("runs", [False, True])
def test_only_a_disk_that_is_named_leaves(guest, runs):
    guest.update(disks=DATA_TOO)
    if runs:
        guest.conn.lookupByName("g1").create()
    before = guest.conn.lookupByName("g1").XMLDesc()
    update = guest.modules["virt.update"]
    for listed in ([], DATA_TOO[1:], [{"name": "other", "size": 4, "format": "raw"}]):
        with pytest.raises(errors.VirtError, match=r"detached from vda, and g1 boots from it"):
            update("g1", disks=listed, detach=True)
    with pytest.raises(errors.VirtError, match=r"detach: data is one of the disks requested"):
        update("g1", disks=DATA_TOO, detach=["data"])
    assert guest.conn.lookupByName("g1").XMLDesc() == before
    told = update("g1", detach=["data", "nope"], test=True)
    assert [change["path"] for change in told["changes"]] == ["disks:vdb"]
    assert told["warnings"] == ["g1 has no disk nope to detach"]
    assert told["missing"] == ["disk nope"]
    update("g1", detach=["data"])  # this driver detaches nothing live
    assert sources(guest.tree()) == [str(guest.images / "g1_system.raw")]
    assert update("g1", detach="data")["definition"] is False


def test_all_but_the_listed_disks_leave_when_that_is_said(guest):
    guest.update(disks=[*DATA_TOO, {"name": "more", "size": 4, "format": "raw"}])
    guest.update(disks=[SYSTEM], detach=True)
    assert sources(guest.tree()) == [str(guest.images / "g1_system.raw")]
    assert (guest.images / "g1_data.raw").exists()


def renamed(guest, monkeypatch, record=True):
    """g1 under the name g2, with the file names that it had on shared storage."""
    monkeypatch.setattr(usage, "others_may_have", lambda *_: "NFS")
    guest.modules["virt.rename"]("g1", "g2")
    there = guest.conn.lookupByName("g2")
    if not record:
        model = Domain.fromstring(there.XMLDesc())
        model.record.devices = None
        guest.conn.defineXML(model.tostring())
    return guest.modules["virt.update"]


@pytest.mark.parametrize("detach", [False, True])
def test_a_disk_is_found_again_after_a_rename_that_left_its_file(guest, monkeypatch, detach):
    update = renamed(guest, monkeypatch)
    done = update("g2", disks=[{**SYSTEM, "size": 32}], detach=detach)
    assert [change["path"] for change in done["changes"]] == ["disks:vda:size_bytes"]
    assert (guest.images / "g1_system.raw").stat().st_size == 32 * MIB
    again = update("g2", disks=[{**SYSTEM, "size": 32}], detach=detach)
    assert (again["definition"], again["changes"]) == (False, [])
    guest.modules["virt.clone"]("g2", "g3")
    done = update("g3", disks=[{**SYSTEM, "size": 48}], detach=detach)
    assert [change["path"] for change in done["changes"]] == ["disks:vda:size_bytes"]


def test_without_a_record_what_is_unclear_is_refused_and_can_be_said(guest, monkeypatch):
    update = renamed(guest, monkeypatch, record=False)
    before = guest.conn.lookupByName("g2").XMLDesc()
    for wrong in ([{**SYSTEM, "size": 32}], [{"name": "data", "size": 4}]):
        with pytest.raises(errors.VirtError, match=r"not recorded: vda \(.*g1_system.raw\)"):
            update("g2", disks=wrong)
    assert guest.conn.lookupByName("g2").XMLDesc() == before
    update("g2", disks=[{"name": "system", "target": "vda"}])
    done = update("g2", disks=[{**SYSTEM, "size": 32}])  # the name is recorded now
    assert [change["path"] for change in done["changes"]] == ["disks:vda:size_bytes"]


def test_a_guest_of_before_gets_a_record_by_the_next_update(guest):
    model = Domain.fromstring(guest.conn.lookupByName("g1").XMLDesc())
    model.record.devices = None
    guest.conn.defineXML(model.tostring())
    told = guest.update(disks=[SYSTEM], test=True)
    assert (told["definition"], "named-disk" in guest.conn.lookupByName("g1").XMLDesc()) == (
        False,
        False,
    )
    assert guest.update(disks=[SYSTEM])["definition"] is False
    assert identity.disk_names(Domain.fromstring(guest.conn.lookupByName("g1").XMLDesc())) == {
        "vda": "system"
    }


@pytest.mark.parametrize("detach", [False, True])
def test_a_volume_that_the_pool_has_named_is_found_again(guest, monkeypatch, detach):
    """In a pool of partitions a volume is called sdz1."""
    numbers = iter(range(1, 9))
    monkeypatch.setattr(pool_source, "type_of", lambda _pool: "disk")
    monkeypatch.setattr(pool_disk, "_partition", lambda _pool, _there: f"sdz{next(numbers)}")
    data = {"name": "data", "pool": "default-pool"}  # this driver has no file of it to measure
    guest.modules["virt.update"]("g1", disks=[SYSTEM, {**data, "size": 4}])
    assert guest.update(disks=[SYSTEM, data], detach=detach)["definition"] is False
    volumes = [node.get("volume") for node in guest.tree().iterfind("devices/disk/source[@volume]")]
    assert volumes == ["sdz1"]


def macs(guest):
    return [node.get("address") for node in guest.tree().iterfind("devices/interface/mac")]


def test_the_interface_that_is_not_listed_goes_and_no_other(guest):
    nics = [{"name": f"eth{number}", "network": "default"} for number in range(3)]
    guest.update(interfaces=nics)
    first, _, third = macs(guest)
    guest.update(interfaces=[{**nics[2], "filter": "clean-traffic"}, nics[0]])
    assert macs(guest) == [first, third]
    filters = [nic.find("filterref") for nic in guest.tree().iterfind("devices/interface")]
    assert [found is not None for found in filters] == [False, True]


def test_which_interface_goes_is_asked_where_nobody_knows_it(guest):
    known = [{"mac": f"52:54:00:00:00:0{number}", "network": "default"} for number in range(3)]
    guest.update(interfaces=known)
    asked = [{"name": "eth1", "network": "default"}]
    with pytest.raises(errors.VirtError, match=r"eth1 matches more than one .* give the mac"):
        guest.modules["virt.update"]("g1", interfaces=asked)
    assert len(macs(guest)) == 3
    guest.update(interfaces=[{**asked[0], "mac": known[1]["mac"]}])
    guest.update(interfaces=asked)
    assert macs(guest) == [known[1]["mac"]]


def test_interfaces_without_a_name_have_macs_of_their_own(guest):
    guest.update(interfaces=[{"network": "default"} for _ in range(4)])
    assert len(set(macs(guest))) == 4
    mac = macs(guest)[0]
    with pytest.raises(errors.VirtError, match=f"the mac {mac} is requested twice"):
        guest.update(interfaces=[{"mac": mac}, {"mac": mac}])


def test_a_new_interface_never_gets_a_mac_that_another_guest_has(guest):
    nic = {"name": "eth0", "network": "default"}
    (change,) = guest.update(interfaces=[nic], test=True)["changes"]
    taken = change["new"]["mac"]
    guest.init("g2", disk=None, interfaces=[{**nic, "mac": taken}])
    guest.update(interfaces=[nic])
    assert len(macs(guest)) == 1 and macs(guest) != [taken]


def test_null_takes_a_setting_from_an_interface_and_from_a_disk(guest):
    nic = {
        "name": "eth0", "network": "default", "filter": "clean-traffic", "mtu": 1400, "queues": 2,
        "bandwidth": {"inbound": {"average": 8}, "outbound": {"average": 9}}, "link": False,
        "portgroup": "x", "vlan": 7, "virtualport": {"type": "802.1Qbh", "parameters":
                                                     {"profileid": "p"}},
    }  # fmt: skip
    disk = {
        "name": "system", "cache": "none", "io": "native", "serial": "s1", "read_only": True,
        "boot_order": 1,
    }  # fmt: skip
    guest.update(interfaces=[nic], disks=[disk])
    guest.update(interfaces=[{**nic, "bandwidth": {"inbound": None}}], disks=[disk])
    bandwidth = guest.tree().find("devices/interface/bandwidth")
    assert [child.tag for child in bandwidth] == ["outbound"]
    asked = {
        "interfaces": [{**dict.fromkeys(nic), "name": "eth0", "network": "default"}],
        "disks": [{**dict.fromkeys(disk), "name": "system"}],
    }
    paths = {change["path"].rpartition(":")[2] for change in guest.update(**asked)["changes"]}
    removed = {"filter", "mtu", "queues", "bandwidth", "link_state", "portgroup", "vlan",
               "virtualport", "cache", "io", "serial", "read_only", "boot_order"}  # fmt: skip
    assert paths == removed
    found = {node.tag for node in guest.tree().iter("interface")
             for node in node} - {"mac", "source", "model", "address", "target"}  # fmt: skip
    assert found == set()


def test_an_interface_that_leaves_its_switch_leaves_its_settings_there(guest):
    port = {"bridge": "ovsbr0", "vlan": 100, "virtualport": "openvswitch"}
    model = Domain.fromstring(
        guest.conn.lookupByName("g1").XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    )
    model.interfaces.append(
        Interface.fromstring(
            "<interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='ovsbr0'/>"
            "<vlan><tag id='100'/></vlan><virtualport type='openvswitch'/></interface>"
        )
    )
    guest.conn.defineXML(model.tostring())
    assert guest.update(interfaces=[{"name": "eth0", **port}])["definition"] is False
    guest.update(interfaces=[{"name": "eth0", "network": "default"}])
    (nic,) = guest.tree().iterfind("devices/interface")
    assert (nic.find("vlan"), nic.find("virtualport")) == (None, None)
    assert nic.find("mac").get("address") == "52:54:00:00:00:01"


def test_a_new_interface_has_the_mac_that_the_test_said(guest):
    nics = [{"name": "eth0", "network": "default"}, {"name": "eth1", "network": "default"}]
    told = guest.update(interfaces=nics, test=True)["changes"]
    assert guest.update(interfaces=nics)["changes"] == told
    macs = [node.get("address") for node in guest.tree().iterfind("devices/interface/mac")]
    assert [f"nics:{mac}" for mac in macs] == [change["path"] for change in told]
    assert len(set(macs)) == 2


def test_stop_on_reboot_is_left_unless_it_is_said(guest):
    for given, action in [(True, "destroy"), (None, "destroy"), (False, "restart")]:
        guest.update(stop_on_reboot=given)
        assert guest.tree().findtext("on_reboot") == action


def test_a_test_says_that_the_host_has_no_room(guest):
    with pytest.raises(errors.VirtError, match=r"of memory requested"):
        guest.modules["virt.update"]("g1", mem="1TiB", test=True)


def test_a_console_that_libvirt_would_overwrite_is_refused(guest):
    with pytest.raises(
        errors.VirtError, match=r"the first one is on the first serial port, of type tcp"
    ):
        guest.update(serials=[{"type": "tcp", "port": 2345}], consoles=[{"type": "pty"}])


def test_a_disk_grows(guest):
    guest.update(disks=[{**SYSTEM, "size": 32}])
    assert (guest.images / "g1_system.raw").stat().st_size == 32 * MIB
    assert guest.update(disks=[SYSTEM])["definition"] is False
    assert (guest.images / "g1_system.raw").stat().st_size == 32 * MIB


def test_a_given_disk_needs_no_size_and_is_not_touched(guest, tmp_path):
    data = tmp_path / "data.raw"
    data.write_bytes(b"precious" * 64)
    given = {"name": "data", "source_file": str(data), "format": "raw"}
    guest.update(disks=[SYSTEM, given])
    assert sources(guest.tree())[1] == str(data)
    guest.modules["virt.purge"]("g1")
    assert data.read_bytes() == b"precious" * 64


def test_a_nic_keeps_its_mac_while_its_network_changes(guest):
    guest.update(interfaces=[{"name": "eth0", "network": "default"}])
    mac = guest.tree().find("devices/interface/mac").get("address")
    guest.update(interfaces=[{"name": "eth0", "type": "user"}])
    assert guest.tree().find("devices/interface").get("type") == "user"
    assert guest.tree().find("devices/interface/mac").get("address") == mac


@pytest.mark.parametrize(
    ("arguments", "path", "value"),
    [
        ({"boot_dev": "network hd"}, "os/boot[1]@dev", "network"),
        ({"graphics": {"type": "vnc"}}, "devices/graphics@listen", "127.0.0.1"),
        ({"stop_on_reboot": True}, "on_reboot", "destroy"),
        ({"clock": {"utc": False}}, "clock@offset", "localtime"),
        ({"title": "the web"}, "title", "the web"),
        ({"serials": [{"type": "pty"}]}, "devices/serial@type", "pty"),
        (
            {"numatune": {"memory": {"mode": "strict", "nodeset": 0}}},
            "numatune/memory@mode",
            "strict",
        ),
    ],
)
def test_each_argument_reaches_the_definition(guest, arguments, path, value):
    guest.update(**arguments)
    place, _, attribute = path.partition("@")
    node = guest.tree().find(place)
    assert (node.get(attribute) if attribute else node.text) == value


def test_autostart_changes_only_when_asked(guest):
    dom = guest.conn.lookupByName("g1")
    guest.update(autostart=True)
    assert dom.autostart() == 1
    guest.update(mem=256)
    assert dom.autostart() == 1
    guest.update(autostart=False)
    assert dom.autostart() == 0


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"mem": "1TiB"}, "of memory requested"),
        ({"cpu": 17}, "17 vCPUs requested, the host has 16 CPUs"),
        ({"disks": [{"name": "x"}]}, "disk x: size is missing"),
        ({"disk_profile": "nope"}, "disk profile: unknown 'nope'"),
        ({"interfaces": [{"name": "e", "bridge": "nobr"}]}, "no bridge nobr"),
        ({"colour": "red"}, "unknown 'colour'"),
    ],
)
def test_what_is_wrong_changes_nothing(guest, wrong, why):
    before = guest.conn.lookupByName("g1").XMLDesc()
    with pytest.raises(errors.VirtError, match=why):
        guest.update(**wrong)
    assert guest.conn.lookupByName("g1").XMLDesc() == before
    assert [path.name for path in guest.images.iterdir()] == ["g1_system.raw"]


def test_a_definition_that_libvirt_refuses_leaves_no_new_disk(guest):
    disks = [SYSTEM, {"name": "data", "size": 4}]
    far = {"memory": {"mode": "strict", "nodeset": "20000"}}
    with pytest.raises(errors.VirtError, match=r"cannot define the domain: .*bitmap '20000'"):
        guest.update(disks=disks, numatune=far)
    assert [path.name for path in guest.images.iterdir()] == ["g1_system.raw"]
    assert len(sources(guest.tree())) == 1


def test_the_volume_for_cloud_init_stays(guest, tmp_path):
    (tmp_path / "seed.iso").write_bytes(bytes(2048))
    path = f"{tmp_path}/seed.iso"
    drive = {"name": "seed", "device": "cdrom", "source_file": path, "format": "raw"}
    guest.update(disks=[SYSTEM, drive])
    own = f'<saltvirt:disk target="hda" path="{path}"/></saltvirt:guest>'
    xml = guest.conn.lookupByName("g1").XMLDesc()
    guest.conn.defineXML(xml.replace("</saltvirt:guest>", own))
    assert guest.update(disks=[SYSTEM])["definition"] is False
    assert path in sources(guest.tree())
    seeded = xml.replace('seeded="no"', 'seeded="yes"').replace(f"<source file='{path}'/>", "")
    guest.conn.defineXML(seeded)
    assert guest.update(disks=[SYSTEM])["definition"] is False
    assert len(guest.tree().findall("devices/disk")) == 2


def test_a_kernel_by_address_is_fetched_only_when_it_changes_something(guest, tmp_path):
    boot = {"kernel": "salt://vmlinuz"}
    (change,) = guest.update(boot=boot, test=True)["changes"]
    assert change["new"].startswith(str(guest.images / "_boot"))
    assert not (guest.images / "_boot").exists()
    source = tmp_path / "vmlinuz"
    source.write_text("kernel")
    spec = BootSpec.parse(boot, "boot")
    wanted = kernels.set_local_paths(spec, str(guest.images))
    assert spec.kernel == change["new"]
    kernels.fetch(
        wanted, guest_builder.Tools(None, get_url=lambda _address, to: shutil.copy(source, to))
    )
    with open(spec.kernel, encoding="utf-8") as file:
        assert file.read() == "kernel"
    with pytest.raises(errors.VirtError, match=r"cannot fetch salt://vmlinuz"):
        kernels.fetch(wanted, guest_builder.Tools(None, get_url=lambda _address, _to: ""))


@pytest.mark.parametrize("ends", ["short", "broken off", "nothing", "other"])
def test_a_kernel_that_others_start_with_is_replaced_whole_or_not_at_all(tmp_path, ends):
    spec = BootSpec.parse({"kernel": "salt://vmlinuz"}, "boot")
    wanted = kernels.set_local_paths(spec, str(tmp_path))
    hashed = {"hash_type": "sha256", "hsum": hashlib.sha256(b"new kernel").hexdigest()}
    download = SimpleNamespace(version=lambda _source: hashed)
    seen = []

    def get_url(_address, to, content=b"new kernel", ends=None):
        seen.append(Path(spec.kernel).read_bytes() if os.path.exists(spec.kernel) else None)
        Path(to).write_bytes(content[:3] if ends == "short" else content)
        seen.append(Path(spec.kernel).read_bytes() if os.path.exists(spec.kernel) else None)
        if ends == "broken off":
            raise OSError(errno.EIO, "the master went away")
        return "" if ends == "nothing" else to

    if ends == "other":
        kernels.fetch(wanted, guest_builder.Tools(None, get_url=get_url))
        other = kernels.set_local_paths(
            BootSpec.parse({"kernel": "salt://vmlinuz"}, "boot"), "/x", "dev"
        )
        assert [*other] != ["/x" + spec.kernel.removeprefix(str(tmp_path))]
    else:
        first = partial(get_url, content=b"old kernel")
        kernels.fetch(wanted, guest_builder.Tools(None, get_url=first))
        tools = guest_builder.Tools(None, get_url=partial(get_url, ends=ends), download=download)
        with pytest.raises(errors.VirtError, match=r"fetch"):
            kernels.fetch(wanted, tools)
        assert seen == [None, None, b"old kernel", b"old kernel"]
        assert Path(spec.kernel).read_bytes() == b"old kernel"
    kernels.fetch(wanted, guest_builder.Tools(None, get_url=get_url, download=download))
    assert Path(spec.kernel).read_bytes() == b"new kernel"
    assert [one.name for one in (tmp_path / "_boot").glob(".*")] == [".lock"]


@pytest.fixture
def in_between(monkeypatch):
    """A callable that has another one called once, when an update has found its differences."""
    fetch = kernels.fetch

    def call(act, times=1):
        left = [act] * times

        def fetched(*arguments):
            if left:
                left.pop()()
            return fetch(*arguments)

        monkeypatch.setattr(kernels, "fetch", fetched)

    return call


def test_of_two_updates_at_once_none_is_lost(guest, in_between, monkeypatch):
    def another():
        guest.modules["virt.update"]("g1", cpu=4)

    threads, waits = [], threading.Event()

    def sleep(seconds):
        waits.set()
        time.sleep(seconds)

    monkeypatch.setattr(guest_lock, "time", SimpleNamespace(**{**vars(time), "sleep": sleep}))

    def begin():
        threads.append(threading.Thread(target=another))
        threads[0].start()
        assert waits.wait(60), "for the lock of the guest"

    in_between(begin)
    guest.modules["virt.update"]("g1", mem=256)
    threads[0].join()
    tree = guest.tree()
    assert (tree.findtext("vcpu"), tree.findtext("memory")) == ("4", str(256 * 1024))


def retitled(guest, number):
    dom = guest.conn.lookupByName("g1")
    kind, config = libvirt.VIR_DOMAIN_METADATA_TITLE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
    dom.setMetadata(kind, str(number), None, None, config)


def test_what_libvirt_changed_meanwhile_is_not_lost_either(guest, in_between):
    disks = [SYSTEM, {"name": "data", "size": 4, "format": "raw"}]
    in_between(lambda: retitled(guest, "by hand"))
    guest.modules["virt.update"]("g1", mem=256, disks=disks)
    tree = guest.tree()
    assert (tree.findtext("title"), tree.findtext("memory")) == ("by hand", str(256 * 1024))
    assert len(sources(tree)) == 2


def test_a_definition_that_never_rests_is_left_as_it_is(guest, in_between):
    from itertools import count

    numbers = count()
    in_between(lambda: retitled(guest, next(numbers)), times=9)
    with pytest.raises(errors.VirtError, match=r"being changed through libvirt"):
        guest.modules["virt.update"]("g1", mem=256)
    assert guest.tree().findtext("memory") == str(128 * 1024)


def test_others_are_admitted_while_a_disk_is_copied_and_see_what_it_takes(
    guest, tmp_path, monkeypatch
):
    """The host's lock is held for the decision alone; the room is promised meanwhile."""
    monkeypatch.setattr(reservations, "FOLDER", str(tmp_path / "promises"))
    whole, seen = disks.make, []

    def make(conn, work, undo, progress=None, note=None):
        with file_lock.exclusive(str(tmp_path / "lock" / "admit.lock"), timeout_s=0):
            seen.extend(reservations.local(("g1",), str(tmp_path / "promises")))
        whole(conn, work, undo, progress, note=note)

    monkeypatch.setattr(disks, "make", make)
    guest.update(mem=160, disks=[SYSTEM, {"name": "data", "size": 8, "format": "raw"}])
    (one,) = seen
    assert (one.name, one.memory_kib) == ("g1+", 32 * 1024)
    assert [size for _, size in one.disks] == [8 * MIB]
    assert list((tmp_path / "promises").iterdir()) == []


def test_a_promise_of_a_process_that_died_goes_with_the_next_one(tmp_path):
    reservation.GrowthReservation("g1", 1024, folder=str(tmp_path))
    other = reservation.GrowthReservation("g2", 1024, folder=str(tmp_path))
    again = reservation.GrowthReservation("g1", -5, 1, [("/srv", 7)], folder=str(tmp_path))
    found = {one.name: one for one in reservations.local((), str(tmp_path))}
    assert (found["g1+"].memory_kib, found["g1+"].disks) == (0, (("/srv", 7),))
    again.release()
    other.release()
    assert list(tmp_path.iterdir()) == []
