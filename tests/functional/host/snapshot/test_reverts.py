"""Reverts to a snapshot for which the guest, the host or QEMU lacks something: refused before
anything changes. In a private libvirtd with QEMU."""

import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from salt.exceptions import CommandExecutionError

from saltvirt import errors
from saltvirt.host.migration import move_journal
from saltvirt.host.snapshot import layers
from saltvirt.host.storage import usage
from saltvirt.migration.journal import MOVING, GuestReport, JournalEntry
from tests.functional.conftest import load
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.domain.test_snapshot_kinds import holds, host, run, write  # noqa: F401

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a libvirtd of our own needs root"),
    pytest.mark.skipif(not os.path.exists("/usr/bin/qemu-io"), reason="no qemu-io"),
]
CONFIG, LIVE = libvirt.VIR_DOMAIN_AFFECT_CONFIG, libvirt.VIR_DOMAIN_AFFECT_LIVE
NIC = "<interface type='network'><source network='lab'/></interface>"
LAB = """<network><name>lab</name><bridge name='svlab'/><dns enable='no'/>
<ip address='192.168.130.1' prefix='24'/></network>"""


def plain(dom, name, more=""):
    """A snapshot as libvirt itself takes it."""
    text = f"<domainsnapshot><name>{name}</name>{more}</domainsnapshot>"
    return dom.snapshotCreateXML(text, 0)


def refused(host, match, *arguments, **more):  # noqa: F811
    for test in (True, False):
        with pytest.raises(CommandExecutionError, match=match):
            host.call("revert_snapshot", "g", *arguments, **more, test=test)


def test_a_name_that_is_another_ones_id_is_not_taken_for_it(host):  # noqa: F811
    path = host.disk("g.qcow2")
    dom = host.define(host.device(path))
    for pattern, name in enumerate(("2", "foo"), 1):
        write(path, pattern)
        plain(dom, name)
    write(path, 3)
    refused(host, r"QEMU would use foo for snapshot 2.*delete snapshot foo first", "2")
    assert holds(path, 3)
    host.call("delete_snapshots", "g", "foo")
    host.call("revert_snapshot", "g", "2")
    assert holds(path, 1)


@pytest.mark.parametrize("name", ["7", 'a"b', "a\\b"])
def test_a_name_by_which_qemu_does_not_find_it_is_refused(host, name):  # noqa: F811
    host.define(host.device(host.disk("g.qcow2")))
    for test in (True, False):
        with pytest.raises(CommandExecutionError, match=r"internal snapshot cannot have the name"):
            host.call("snapshot", "g", name, test=test)
    assert host.names() == []
    assert host.call("snapshot", "g", "20261128") == {"name": "20261128"}


def test_a_disk_that_another_guest_has_now_stays_as_it_is(host):  # noqa: F811
    data = host.disk("data.qcow2")
    dom = host.define(host.device(host.disk("g.qcow2")) + host.device(data, "vdb"))
    host.call("snapshot", "g", "a")
    dom.detachDeviceFlags(host.device(data, "vdb"), CONFIG)
    host.define(host.device(data), name="h")
    write(data, 3)
    refused(host, r"needs disk vdb, \S*data.qcow2, which g no longer has", "a")
    assert holds(data, 3) and str(data) not in dom.XMLDesc(0)


@pytest.mark.parametrize("gone", ["file", "inside"])
def test_no_disk_is_put_back_where_not_all_can_be(host, gone):  # noqa: F811
    system, data = host.disk("g.qcow2"), host.disk("data.qcow2")
    dom = host.define(host.device(system) + host.device(data, "vdb"))
    host.call("snapshot", "g", "a")
    write(system, 3)
    if gone == "file":
        dom.detachDeviceFlags(host.device(data, "vdb"), CONFIG)
        data.unlink()
    else:
        run("qemu-img", "snapshot", "-d", "a", str(data))
    refused(host, r"data.qcow2(, which no longer exists| contains no snapshot a)", "a")
    assert holds(system, 3)


def test_a_disk_at_another_target_is_the_guests_own(host):  # noqa: F811
    path = host.disk("g.qcow2")
    dom = host.define(host.device(path))
    write(path, 1)
    host.call("snapshot", "g", "a")
    write(path, 2)
    again = dom.XMLDesc(0).replace("dev='vda'", "dev='vdc'")
    host.conn.defineXML(again)
    host.call("revert_snapshot", "g", "a")
    assert holds(path, 1)


def test_an_image_that_is_based_on_the_disk_is_not_damaged(host):  # noqa: F811
    path, above = host.disk("g.qcow2"), host.folder / "images" / "above.qcow2"
    host.define(host.device(path))
    host.call("snapshot", "g", "a")
    write(path, 2)
    run("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(path), "-F", "qcow2", str(above))
    dom = host.dom
    host.define(host.device(above), name="h")
    host.dom = dom
    refused(host, r"g.qcow2 would be lost, but h needs it", "a")
    assert holds(path, 2)


def test_a_doubt_does_not_keep_a_guest_from_its_own_disk(host, monkeypatch):  # noqa: F811
    """Such as a server that does not answer, on which an image could be that is based on it."""
    path = host.disk("g.qcow2")
    host.define(host.device(path))
    host.call("snapshot", "g", "a")
    write(path, 2)
    monkeypatch.setattr(usage.Usage, "keep_reason", lambda *_, **__: "nobody can tell")
    host.call("revert_snapshot", "g", "a")
    assert not holds(path, 2)


def test_a_medium_that_is_gone_leaves_the_drive_empty(host):  # noqa: F811
    iso = host.disk("s.iso", "raw", "1M")
    drive = (
        f"<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='{iso}'/>"
        "<target dev='sda' bus='sata'/><readonly/></disk>"
    )
    empty = drive.replace(f"<source file='{iso}'/>", "")
    dom = host.define(host.device(host.disk("g.qcow2")) + drive)
    host.call("snapshot", "g", "off")
    host.call("start", "g")
    host.call("snapshot", "g", "on")
    dom.updateDeviceFlags(empty, CONFIG | LIVE)
    iso.unlink()
    for name in ("on", "off"):
        for test in (True, False):
            notes = host.call("revert_snapshot", "g", name, test=test)["notes"]
            assert any("sda will be empty" in one and str(iso) in one for one in notes)
    assert not dom.isActive()
    assert host.call("start", "g") is True
    assert host.call("revert_snapshot", "g", "on")["reverted"] == "on"
    host.call("stop", "g")
    assert host.call("start", "g") is True


def test_a_guest_is_not_stopped_for_a_network_that_does_not_run(host, libvirtd):  # noqa: F811
    run(*libvirtd.inside, "mkdir", "-p", "/var/lib/libvirt/dnsmasq")
    network = host.conn.networkDefineXML(LAB)
    try:
        network.create()
        dom = host.define(host.device(host.disk("g.qcow2")) + NIC)
        dom.create()
        host.call("snapshot", "g", "a")
        network.destroy()
        refused(host, r"uses the network lab, which is not active", "a")
        assert dom.isActive()
        network.create()
        host.call("revert_snapshot", "g", "a")
    finally:
        if network.isActive():
            network.destroy()
        network.undefine()


def test_a_guest_is_not_stopped_for_what_libvirt_cannot_do(host):  # noqa: F811
    if host.conn.getLibVersion() >= 9_009_000:
        pytest.skip("this libvirt goes back to them")
    dom = host.define(host.device(host.disk("g.qcow2")))
    dom.create()
    host.call("snapshot", "g", "a", disk_only=True)
    plain(dom, "b", f"<memory snapshot='external' file='{host.folder}/memory'/>")
    refused(host, r"cannot revert to snapshot b", "a", cleanup=True)
    assert dom.isActive() and host.names() == ["a", "b"]


@pytest.mark.parametrize("shared", [True, False])
def test_a_guest_of_which_libvirt_takes_none_is_told_so_before(host, shared):  # noqa: F811
    disk = host.device(host.disk("s.raw", "raw"), "vdb", "raw")
    disk = disk.replace("</disk>", "<shareable/></disk>")
    host.define(host.device(host.disk("g.qcow2")) + disk if shared else "")
    match = r"disk vdb of g is shareable" if shared else r"g has no writable disk"
    for test in (True, False):
        with pytest.raises(CommandExecutionError, match=match):
            host.call("snapshot", "g", "a", test=test)


def test_a_guest_that_may_be_on_another_host_is_not_reverted(host, monkeypatch):  # noqa: F811
    path = host.disk("g.qcow2")
    dom = host.define(host.device(path))
    host.call("snapshot", "g", "a")
    write(path, 2)
    report = GuestReport("g", dom.UUIDString(), "hv1", False, "shutdown")
    entry = JournalEntry(report, "qemu+tls://hv2/system", MOVING)
    monkeypatch.setattr(move_journal, "load_for_domain", lambda *_: entry)
    refused(host, r"the target of an interrupted migration", "a")
    assert holds(path, 2)


def test_saved_memory_is_named_where_a_change_has_to_wait(host):  # noqa: F811
    dom = host.define(host.device(host.disk("g.qcow2")))
    dom.create()
    dom.managedSave()
    try:
        for test in (True, False):
            [warning] = host.call("update", "g", mem=64, test=test)["warnings"]
            assert warning.startswith("g has saved memory: its next start resumes that memory")
        assert "warnings" not in host.call("update", "g", mem=64)
        host.call("start", "g")
        assert dom.info()[1] == 32 * 1024
    finally:
        if not dom.isActive():
            dom.managedSaveRemove()


def test_no_second_snapshot_of_a_name_inside_a_disk(host):  # noqa: F811
    """QEMU goes back to the first one, of which libvirt may not know any more."""
    path = host.disk("g.qcow2")
    dom = host.define(host.device(path))
    write(path, 1)
    host.call("snapshot", "g", "a")
    dom.snapshotLookupByName("a").delete(libvirt.VIR_DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY)
    write(path, 2)
    for test in (True, False):
        with pytest.raises(CommandExecutionError, match=r"g.qcow2 contains a snapshot a that"):
            host.call("snapshot", "g", "a", test=test)
    plain(dom, "a")  # as it was taken by an earlier version
    write(path, 3)
    refused(host, r"g.qcow2 contains several snapshots a", "a")
    assert holds(path, 3)
    host.call("delete_snapshots", "g", "a")
    host.call("snapshot", "g", "b")
    assert host.call("revert_snapshot", "g", "b")["reverted"] == "b"


def test_a_guest_is_not_stopped_where_its_layer_cannot_be_made(host, monkeypatch):  # noqa: F811
    if host.conn.getLibVersion() >= 9_009_000:
        pytest.skip("libvirt makes it")
    path = host.disk("g.qcow2")
    dom = host.define(host.device(path))
    host.call("snapshot", "g", "a", disk_only=True)
    write(host.now(), 2)
    dom.create()

    def full(*_):
        raise errors.OperationFailed("no room")

    with monkeypatch.context() as patch:
        patch.setattr(layers.Layer, "recreate_in", full)
        with pytest.raises(CommandExecutionError, match="no room"):
            host.call("revert_snapshot", "g", "a")
    assert dom.isActive()
    host.call("revert_snapshot", "g", "a")
    assert not dom.isActive() and not holds(host.now(), 2)


def test_a_guest_that_is_off_is_not_started_where_there_is_no_room(host):  # noqa: F811
    path = host.disk("g.qcow2")
    dom = host.define(host.device(path))
    dom.create()
    host.call("snapshot", "g", "a")
    full = load(
        host.conn.getURI(), lock=str(host.folder / "lock"), images=str(host.folder / "images"),
        placement={"reserved_memory_kib": 2**40},
    )  # fmt: skip
    # of one that runs nothing more is promised
    assert full["virt.revert_snapshot"]("g", "a")["reverted"] == "a"
    dom.destroy()
    write(path, 2)
    for test in (True, False):
        with pytest.raises(CommandExecutionError, match="overcommit=True"):
            full["virt.revert_snapshot"]("g", "a", test=test)
    assert holds(path, 2) and not dom.isActive()
    full["virt.revert_snapshot"]("g", "a", overcommit=True)
    assert dom.isActive()


@pytest.mark.parametrize("name", ["a\nb", "a\tb"])
def test_a_name_that_xml_does_not_keep_is_refused(host, name):  # noqa: F811
    host.define(host.device(host.disk("g.raw", "raw"), format="raw"))
    for given in ({"name": name}, {"suffix": name}):
        with pytest.raises(CommandExecutionError, match=r"more than one line|has a tab"):
            host.call("snapshot", "g", **given)


def test_a_layer_of_a_guest_that_is_off_is_where_it_is_named_and_private(host):  # noqa: F811
    path = host.disk("g.raw", "raw")
    path.chmod(0o640)
    host.define(host.device(path, format="raw"))
    for test in (True, False):
        with pytest.raises(CommandExecutionError, match=r"g.a, b while g is off.* has a comma"):
            host.call("snapshot", "g", "a, b", test=test)
    host.call("snapshot", "g", "a")
    assert os.stat(host.now()).st_mode & 0o777 == 0o640
    host.dom.create()
    host.call("snapshot", "g", "a, b")
    assert os.path.exists(host.now())
    host.dom.destroy()
    host.dom.create()


def test_libvirt_does_not_end_when_a_snapshot_of_other_disks_is_deleted(host):  # noqa: F811
    """libvirt 9.0 would: a disk of the snapshot that the running guest no longer has."""
    data = host.disk("data.qcow2")
    dom = host.define(host.device(host.disk("g.qcow2")) + host.device(data, "vdb"))
    host.call("snapshot", "g", "a")
    dom.detachDeviceFlags(host.device(data, "vdb"), CONFIG)
    dom.create()
    for test in (True, False):
        with pytest.raises(CommandExecutionError, match=r"vdb was \S* at that time .*stop the"):
            host.call("delete_snapshots", "g", "a", test=test)
    dom.destroy()
    host.call("delete_snapshots", "g", "a")
    assert host.names() == []


def test_a_volume_of_a_pool_that_does_not_run_is_named(host):  # noqa: F811
    path = host.disk("g.qcow2")
    text = f"<pool type='dir'><name>p</name><target><path>{path.parent}</path></target></pool>"
    pool = host.conn.storagePoolDefineXML(text)
    pool.create()
    disk = host.device(path).replace("type='file'", "type='volume'", 1)
    host.define(disk.replace(f"file='{path}'", "pool='p' volume='g.qcow2'"))
    pool.destroy()
    for test in (True, False):
        with pytest.raises(CommandExecutionError, match=r"vda of g is the volume p/g.qcow2.*start"):
            host.call("snapshot", "g", "a", test=test)
    pool.create()
    assert host.call("snapshot", "g", "a") == {"name": "a"}
