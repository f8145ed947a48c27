"""Checkpoints, from which backups take increments: with libvirt's test driver, which cannot restore
those of a guest that is off, and in real qcow2 files."""

import os
import threading
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors, names
from saltvirt.backup.export import checkpoints as ours
from saltvirt.backup.export import inspect_guest
from saltvirt.backup.model import chains
from saltvirt.backup.model.answers import GuestInspection, InspectedDisk
from saltvirt.host.domain import checkpoints
from saltvirt.host.snapshot import checkpoints as beside
from saltvirt.host.snapshot import layers, reader, snapshots
from saltvirt.images import bitmaps
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.domain.domain import Domain
from tests.functional.backed_up import MIB, qemu_img

pytestmark = pytest.mark.skipif(not os.path.exists("/usr/bin/qemu-img"), reason="no qemu-img")
OURS = names.CHECKPOINT + "000001-20261126T160000Z-0123abcd"
WEB1 = """<domain type='test'><name>web1</name><memory>1024</memory><os><type>hvm</type></os>
<devices>{}</devices></domain>"""
DISK = """<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
<source file='{}'/><target dev='vda'/></disk>"""


@pytest.fixture
def path(tmp_path):
    made = str(tmp_path / "web1.qcow2")
    qemu_img("create", "-q", "-f", "qcow2", made, str(MIB))
    return made


@pytest.fixture
def dom(conn, path):
    """A guest that runs."""
    found = conn.defineXML(WEB1.format(DISK.format(path)))
    found.create()
    return found


def made(dom, name):
    disks = "<disks><disk name='vda' checkpoint='bitmap'/></disks>"
    text = f"<domaincheckpoint><name>{name}</name>{disks}</domaincheckpoint>"
    return dom.checkpointCreateXML(text, 0)


def refuses(code, text="no"):
    """A libvirt that says this."""

    def refuse(*_):
        exc = libvirt.libvirtError(text)
        exc.err = (code, 0, text, 2, "", None, None, 0, 0)
        raise exc

    return refuse


def test_one_that_goes_while_it_is_read_is_passed_over(dom, monkeypatch):
    gone, stays = made(dom, "a"), made(dom, "b")
    gone.delete(0)
    monkeypatch.setattr(checkpoints, "list_all", lambda _: [gone, stays])
    [text] = checkpoints.texts(dom)
    assert "<name>b</name>" in text and checkpoints.names(dom) == ["b"]
    checkpoints.forget(dom)
    assert dom.listAllCheckpoints(0) == []


def test_any_other_error_is_one(dom, monkeypatch):
    made(dom, "a")
    broken = refuses(libvirt.VIR_ERR_INTERNAL_ERROR, "no memory")
    monkeypatch.setattr(libvirt.virDomainCheckpoint, "getXMLDesc", broken)
    with pytest.raises(libvirt.libvirtError, match="no memory"):
        checkpoints.texts(dom)
    monkeypatch.setattr(libvirt.virDomain, "listAllCheckpoints", broken)
    with pytest.raises(libvirt.libvirtError, match="no memory"):
        checkpoints.list_all(dom)


@pytest.mark.parametrize("runs", [True, False])
def test_one_whose_bitmap_qemu_does_not_remove_is_known_no_more(dom, monkeypatch, runs):
    one, delete, flags = made(dom, "a"), libvirt.virDomainCheckpoint.delete, []

    def deleted(self, flag):
        flags.append(flag)
        return delete(self, flag) if flag else refuses(libvirt.VIR_ERR_INTERNAL_ERROR)()

    monkeypatch.setattr(libvirt.virDomainCheckpoint, "delete", deleted)
    if not runs:
        dom.destroy()
    checkpoints.delete(dom, one)
    only = libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY
    assert flags == ([0, only] if runs else [only]) and dom.listAllCheckpoints(0) == []


def test_a_backup_takes_away_what_is_not_needed_and_is_ours(dom, monkeypatch):
    other = names.CHECKPOINT + "000002-20261126T160000Z-0123abcd"
    for name in (OURS, other, "of-somebody"):
        made(dom, name)
    assert ours.sweep(None, dom, [other]) == []
    assert sorted(one.getName() for one in dom.listAllCheckpoints(0)) == ["of-somebody", other]
    broken = refuses(libvirt.VIR_ERR_INTERNAL_ERROR, "it is busy")
    monkeypatch.setattr(libvirt.virDomainCheckpoint, "delete", broken)
    assert ours.sweep(None, dom, []) == [f"checkpoint {other}: it is busy"]


def test_of_one_that_is_off_its_bitmaps_go_from_the_files_and_what_cannot_go_is_named(
    conn, dom, path, monkeypatch
):
    dom.destroy()
    for name in (OURS, "of-somebody"):
        bitmaps.add(path, name)
    monkeypatch.setattr(ours.bitmaps, "remove", taken := Taken(bitmaps.remove))
    assert ours.sweep(conn, dom, [OURS]) == [] and [*bitmaps.read(path)] == [OURS, "of-somebody"]
    [why] = ours.sweep(conn, dom, [])
    assert why == f"bitmap {OURS} of vda: the disk is full"
    taken.fails = False
    assert ours.sweep(conn, dom, []) == [] and [*bitmaps.read(path)] == ["of-somebody"]


class Taken:
    def __init__(self, remove):
        self.remove, self.fails = remove, True

    def __call__(self, *arguments):
        if self.fails:
            raise errors.OperationFailed("the disk is full")
        return self.remove(*arguments)


def test_without_a_bitmap_in_each_file_there_is_no_checkpoint(conn, tmp_path, path):
    """The second file is none: the first has its bitmap no more."""
    (tmp_path / "bad").write_text("no qcow2")
    second = DISK.format(tmp_path / "bad").replace("vda", "vdb")
    dom = conn.defineXML(WEB1.format(DISK.format(path) + second))
    disks = tuple(InspectedDisk(one, MIB, "", "qcow2") for one in ("vda", "vdb"))
    seen = GuestInspection("u", False, disks)
    assert ours.make(conn, dom, seen, "000001-20261126T160000Z-0123abcd") == {}
    assert bitmaps.read(path) == {}


def test_what_libvirt_does_not_take_back_is_named(conn, dom):
    made(dom, "a")
    with beside.hidden_checkpoints(dom):
        assert checkpoints.names(dom) == ["a"]
    dom.destroy()
    words = r"the snapshot exists, but libvirt did not restore the checkpoint a of web1 "
    with pytest.raises(errors.OperationFailed, match=words):
        snapshots.create(conn, "web1", snapshots.SnapshotRequest("s"))
    assert [one.getName() for one in dom.listAllSnapshots()] == ["s"]


def test_what_was_put_aside_when_one_could_not_be_is_told_again(dom, monkeypatch):
    for name in "ab":
        made(dom, name)
    dom.destroy()
    delete, told = libvirt.virDomainCheckpoint.delete, []

    def deleted(self, flags):
        if self.getName() == "b":
            refuses(libvirt.VIR_ERR_INTERNAL_ERROR, "no memory")()
        return delete(self, flags)

    monkeypatch.setattr(libvirt.virDomainCheckpoint, "delete", deleted)

    def known(_dom, text, _flags):
        told.append(checkpoints._name(text))

    monkeypatch.setattr(libvirt.virDomain, "checkpointCreateXML", known)
    with pytest.raises(libvirt.libvirtError, match="no memory"), beside.hidden_checkpoints(dom):
        pytest.fail("a snapshot is made")
    assert told == ["a"]


def test_a_checkpoint_of_somebody_else_keeps_a_guest_from_going_back(conn, dom):
    for name in (OURS, "of-somebody"):
        made(dom, name)
    with pytest.raises(errors.InvalidInput, match=r"checkpoints of another program: of-somebody"):
        beside.remove(conn, dom)
    assert sorted(checkpoints.names(dom)) == ["of-somebody", OURS]


@pytest.mark.parametrize(("name", "runs", "words"), [
    (OURS, True, f"has the bitmap {OURS}: stop it first"),
    ("of-somebody", True, "has the bitmap of-somebody$"),
    ("of-somebody", False, "has the bitmap of-somebody$"),
])  # fmt: skip
def test_a_bitmap_that_must_stay_keeps_it_from_going_back(conn, dom, path, name, runs, words):
    snapshots.create(conn, "web1", snapshots.SnapshotRequest("s"))
    bitmaps.add(path, name)
    if not runs:
        dom.destroy()
    with pytest.raises(errors.InvalidInput, match=words):
        snapshots.revert(conn, "web1", "s")
    assert [*bitmaps.read(path)] == [name]


def test_what_backups_made_goes_when_a_guest_goes_back(conn, dom, path):
    made(dom, OURS)
    bitmaps.add(path, OURS)
    dom.destroy()
    assert beside._disks(conn, dom) == [path]
    beside.remove(conn, dom)
    assert bitmaps.read(path) == {} and checkpoints.names(dom) == []


def test_only_what_libvirt_cannot_do_is_done_in_its_place(conn, dom, monkeypatch):
    """Its files stay as they are where going back failed."""
    snapshots.create(conn, "web1", snapshots.SnapshotRequest("a"))
    there = {one.getName(): one for one in reader.oldest_first(dom)}
    tree = reader.tree(conn, dom)
    failed = refuses(libvirt.VIR_ERR_INTERNAL_ERROR, "no room")
    monkeypatch.setattr(libvirt.virDomain, "revertToSnapshot", failed)
    monkeypatch.setattr(layers, "revert", lambda *_: pytest.fail("its files are touched"))
    with pytest.raises(libvirt.libvirtError, match="no room"):
        snapshots._revert_layers(conn, dom, (tree["a"], there), tree, [], ())


@pytest.mark.parametrize(("disk", "why"), [
    ("<disk device='cdrom'/>", "a drive for cdrom"),
    ("<disk device='floppy'/>", "a drive for floppy"),
    ("<disk type='file' device='disk'><readonly/></disk>", "it is read-only"),
    ("<disk type='file' device='disk'><transient/></disk>", "it is transient"),
    ("<disk type='network' device='disk'/>", "libvirt cannot back up a disk of type network"),
    ("<disk type='block' device='lun'/>", "libvirt cannot back up a disk of type block as lun"),
    ("<disk type='block' device='disk'/>", None), ("<disk type='volume' device='disk'/>", None),
])  # fmt: skip
def test_which_disks_are_in_no_backup_and_why(disk, why):
    said = inspect_guest._skip_reason(Disk.fromstring(disk))
    assert said is None if why is None else said.startswith(why)


def test_where_a_disk_is(conn):
    pool = conn.storagePoolLookupByName("default-pool")
    text = "<volume><name>web1</name><capacity>1024</capacity></volume>"
    volume = pool.createXML(text, 0)

    def disk(source):
        return Disk.fromstring(f"<disk type='volume'>{source}<target dev='vda'/></disk>")

    named = "<source pool='default-pool' volume='web1'/>"
    assert inspect_guest.source_path(conn, disk(named)) == volume.path()
    assert inspect_guest.source_path(conn, disk("<source dev='/dev/x'/>")) == "/dev/x"
    for gone in (named.replace("web1", "web9"), named.replace("default-pool", "gone"), ""):
        with pytest.raises(errors.VirtError, match=r"vda|web9|gone"):
            inspect_guest.source_path(conn, disk(gone))
    volume.delete(0)


def test_a_bitmap_of_which_libvirt_does_not_say_how_much_changed_is_not_relied_on(conn, dom):
    """This driver says it of none."""
    made(dom, OURS)
    made(dom, "of-somebody")
    [disk] = inspect_guest.inspect(conn, "web1").disks
    assert disk.bitmaps == {OURS: chains.INCONSISTENT}


def test_where_libvirt_cannot_say_how_much_changed_none_is_relied_on(conn, dom, monkeypatch):
    """Of a checkpoint with one lost bitmap it says nothing at all."""
    drive = "<disk type='file' device='cdrom'><target dev='hda'/><readonly/></disk>"
    conn.defineXML(dom.XMLDesc(0).replace("</devices>", f"{drive}</devices>"))
    dom.destroy()
    dom.create()
    made(dom, OURS)
    describe = libvirt.virDomainCheckpoint.getXMLDesc
    fails = refuses(libvirt.VIR_ERR_CHECKPOINT_INCONSISTENT)

    def described(self, flags):
        sized = flags & libvirt.VIR_DOMAIN_CHECKPOINT_XML_SIZE
        return fails() if sized else describe(self, flags)

    monkeypatch.setattr(libvirt.virDomainCheckpoint, "getXMLDesc", described)
    found = inspect_guest.inspect(conn, "web1")
    assert [one.bitmaps for one in found.disks] == [{OURS: chains.INCONSISTENT}]
    assert found.skipped == {"hda": "a drive for cdrom"} and found.active


def test_what_the_bitmaps_of_one_that_is_off_are_good_for(conn, dom, path):
    dom.destroy()
    bitmaps.add(path, OURS)
    [disk] = inspect_guest.inspect(conn, "web1").disks
    assert disk.bitmaps == {OURS: chains.GOOD}
    qemu_img("bitmap", "--disable", path, OURS)
    [disk] = inspect_guest.inspect(conn, "web1").disks
    assert disk.bitmaps == {OURS: chains.DISABLED}
    assert inspect_guest._state(["in-use", "auto"]) == chains.INCONSISTENT


def test_a_qemu_that_stands_still_is_named(monkeypatch):
    monkeypatch.setattr(inspect_guest, "_ANSWERS_S", 0.05)
    ends = threading.Event()
    dom = SimpleNamespace(blockInfo=lambda *_: ends.wait(60), name=lambda: "web1")
    [disk] = Domain.fromstring(WEB1.format(DISK.format("/x"))).disks
    try:
        with pytest.raises(errors.OperationFailed, match="the QEMU of web1 does not answer"):
            inspect_guest._disk(None, dom, disk)
    finally:
        ends.set()
