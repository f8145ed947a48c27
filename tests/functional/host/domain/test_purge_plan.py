"""The files that a purge deletes and keeps, and its messages, with libvirt's test driver."""

import logging
import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.backup.export import replaced_guest
from saltvirt.backup.export.replaced_guest import ReplacedGuest
from saltvirt.host.domain import metadata, purge
from saltvirt.host.storage import deletion
from tests.functional.host.snapshot.test_snapshots_shared import layer
from tests.functional.host.storage.test_still_needed import opened
from tests.functional.host.storage.test_usage import create, disk, place  # noqa: F401

EMPTY = "<disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>"
FAR = """<disk type='network'><driver name='qemu' type='raw'/><source protocol='nbd' name='x'>
<host name='nas'/></source><target dev='vdz'/></disk>"""

RECORD = """<metadata><saltvirt:guest xmlns:saltvirt='https://saltproject.io/xmlns/salt-virt/1'
version='1'{creating}>{disks}</saltvirt:guest></metadata>"""
OWN_DISK = "<saltvirt:disk target='vda' path='{}'/>"

# an internal one, and one whose layer is on a device
NO_FILES = """<domainsnapshot><name>inner</name><state>shutoff</state><creationTime>7</creationTime>
<memory snapshot='no'/><disks><disk name='vda' snapshot='internal'/></disks>
{domain}</domainsnapshot>"""
ON_A_DEVICE = """<domainsnapshot><name>outer</name><state>disk-snapshot</state>
<creationTime>8</creationTime><memory snapshot='no'/><disks>
<disk name='vda' snapshot='external' type='block'><driver type='qcow2'/><source dev='/dev/vg/x'/>
</disk></disks>{domain}</domainsnapshot>"""
MEMORY = """<domainsnapshot><name>two</name><state>running</state><creationTime>9</creationTime>
<parent><name>one</name></parent><memory snapshot='external' file='{memory}'/><disks>
<disk name='vda' snapshot='external' type='file'><driver type='qcow2'/>
<source file='{path}'/></disk>
</disks>{domain}</domainsnapshot>"""


def record(*paths, creating=""):
    """The metadata of a guest that we made with these disks."""
    mark = f" creating='{creating}'" if creating else ""
    return RECORD.format(disks="".join(map(OWN_DISK.format, paths)), creating=mark)


def recorded(dom, *paths):
    """The guest with a record of these disks, also where its definition names others by now."""
    return dom.connect().defineXML(dom.XMLDesc(0).replace("<os>", f"{record(*paths)}<os>"))


def redefine(dom, text, **more):
    """A snapshot, without touching a file."""
    text = text.format(domain=dom.XMLDesc(0), **more)
    dom.snapshotCreateXML(text, libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE)


def raw(path):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(1024))
    return path


def test_a_drive_without_a_medium_and_a_disk_of_a_server_are_nothing_to_delete(place):  # noqa: F811
    dom = place.guest(EMPTY + FAR + disk(place.base, "raw"))
    found = purge.plan(place.conn, dom)
    assert (found.delete, found.keep) == ([str(place.base)], {})


def test_what_the_guest_had_before_a_backup_took_its_place_is_named(place, monkeypatch):  # noqa: F811
    monkeypatch.setattr(replaced_guest, "FOLDER", str(place.root / "aside"))
    both = disk(raw(place.root / "other/both.raw"), "raw", target="vdc")
    dom = place.guest(disk(raw(place.root / "other/new.raw"), "raw") + both)
    lent = "<disk type='file'><source file='/lent'/><target dev='vdb'/><readonly/></disk>"
    before = dom.XMLDesc(0).replace("new.raw", "old.raw").replace("</disk>", f"</disk>{lent}", 1)
    replaced_guest.store(ReplacedGuest(dom.UUIDString(), dom.name(), "000001-x", before, ()))
    found = purge.plan(place.conn, dom)
    keep = found.keep
    [why] = [why for path, why in keep.items() if path.endswith("/old.raw")]
    assert f"virt.backup_confirm {dom.name()} host=HOST deletes it" in why
    assert "/lent" not in keep, "it was never the guest's"
    names = [os.path.basename(path) for path in found.delete]
    assert (names, len(keep)) == (["both.raw", "new.raw"], 1), "what it still has goes"


def test_what_a_qemu_has_open_does_not_go_whatever_was_planned(place):  # noqa: F811
    path = str(raw(place.base))
    plans = [purge.PurgePlan([path]), purge.PurgePlan([path])]
    with opened(path, "raw"):
        with deletion.deletion_plan(place.conn, plans.pop) as (todo, paths):
            assert paths == []
            assert "has it open" in todo.keep[path]
        with (
            pytest.raises(errors.OperationFailed, match=r"QEMU process has it open"),
            deletion.ensure_unused(place.conn, path),
        ):
            pass
    plans = [purge.PurgePlan([], {path: "used by web2"}), purge.PurgePlan([path])]
    with deletion.deletion_plan(place.conn, plans.pop) as (todo, paths):
        assert paths == [], "the second look says so"
        assert todo.keep == {path: "used by web2"}


def test_a_device_that_stays_is_named_too(place):  # noqa: F811
    device = """<disk type='block'><driver name='qemu' type='raw'/><source dev='/dev/vg/lent'/>
<target dev='vdy'/><readonly/></disk>"""
    found = purge.plan(place.conn, place.guest(device))
    assert (found.delete, found.keep) == ([], {"/dev/vg/lent": "attached read-only"})


def test_what_is_no_disk_of_its_own_stays_with_its_reason(place):  # noqa: F811
    paths = {name: place.root / "other" / f"{name}.raw" for name in ("iso", "lent", "both")}
    for path in paths.values():
        path.write_bytes(bytes(1024))
    dom = place.guest(
        disk(paths["iso"], "raw", "sda", "cdrom", "<readonly/>")
        + disk(paths["lent"], "raw", "vdb", below="<readonly/>")
        + disk(paths["both"], "raw", "vdc", below="<shareable/>")
    )
    found = purge.plan(place.conn, dom)
    assert found.delete == []
    assert found.keep == {
        str(paths["iso"]): "the medium of a cdrom",
        str(paths["lent"]): "attached read-only",
        str(paths["both"]): "shared",
    }
    again = purge.plan(place.conn, dom, disks=purge.NO_DISKS).keep
    assert again[str(paths["both"])] == "shared"
    dom = place.guest(disk(place.base, "raw"), name="web2")
    assert purge.plan(place.conn, dom, disks=purge.NO_DISKS).keep == {
        str(place.base): purge.NOT_MADE
    }
    made = purge.plan(place.conn, dom, disks=purge.RECORDED_DISKS).keep
    assert made == {str(place.base): purge.NOT_MADE}


def test_a_disk_in_a_pool_goes_with_its_volume_and_needs_the_pool(place):  # noqa: F811
    pool = place.pool("there", place.base.parent, start=True)
    pool.createXML("<volume><name>base.raw</name><capacity>1024</capacity></volume>", 0)
    dom = place.guest(
        "<disk type='volume'><driver name='qemu' type='raw'/><source pool='there' "
        "volume='base.raw'/><target dev='vda'/></disk>"
    )
    assert purge.plan(place.conn, dom).delete == [str(place.base)]
    pool.destroy()
    with pytest.raises(errors.VirtError, match="there"):
        purge.purge(place.conn, "web1")
    assert place.base.exists()
    place.conn.lookupByName("web1")


def test_an_image_of_the_cache_stays(place):  # noqa: F811
    cache = place.root / "images" / "_base"
    cache.mkdir()
    image = cache / "debian.raw"
    image.write_bytes(bytes(1024))
    (place.root / "images" / "_base2").mkdir()
    near = place.root / "images" / "_base2" / "own.raw"
    near.write_bytes(bytes(1024))
    dom = place.guest(disk(image, "raw") + disk(near, "raw", "vdb"))
    found = purge.plan(place.conn, dom, str(cache))
    assert (found.delete, found.keep) == ([str(near)], {str(image): "a cached image"})


def test_the_log_says_what_a_purge_deleted_and_left(place, caplog):  # noqa: F811
    lent = place.root / "other" / "lent.raw"
    lent.write_bytes(bytes(1024))
    part = place.base.parent / ".base.raw.part"
    part.write_bytes(bytes(1024))
    place.guest(disk(place.base, "raw") + disk(lent, "raw", "vdb", below="<readonly/>"))
    caplog.set_level(logging.INFO, purge.log.name)
    done = purge.purge(place.conn, "web1")
    assert done.delete == [str(place.base)]
    assert not place.base.exists()
    assert not part.exists(), "what a killed init began"
    assert lent.exists()
    assert f"purge of web1: deleted {place.base}" in caplog.messages
    assert f"purge of web1: {lent} was not deleted: attached read-only" in caplog.messages


def test_only_a_file_is_deleted_as_one(place, caplog):  # noqa: F811
    pipe = place.root / "pipe"
    os.mkfifo(pipe)
    purge.delete_file(str(pipe))
    purge.delete_file(str(place.root / "data"))
    assert pipe.exists()
    assert f"{pipe} is not a file and in no storage pool: it is not deleted" in caplog.messages
    purge.delete_file(str(place.root / "gone"))
    with pytest.raises(errors.OperationFailed, match=r"cannot delete .*: Not a directory"):
        purge.delete_file(str(place.base / "x"))
    link = place.root / "link"
    link.symlink_to(place.base)
    purge.delete_file(str(link))
    assert (link.is_symlink(), place.base.exists()) == (True, True)


def test_nothing_is_deleted_on_another_machine(place, monkeypatch):  # noqa: F811
    monkeypatch.setattr(purge.connection, "is_local", lambda conn: False)
    with pytest.raises(errors.OperationFailed, match="it is in no storage pool of the host"):
        purge.delete_storage(place.conn, str(place.base))
    assert place.base.exists()


def test_folders_that_became_empty_go_from_the_deepest_on(place):  # noqa: F811
    images, deep = place.root / "images", place.root / "images" / "web1" / "deep"
    kept = images / "kept"
    deep.mkdir(parents=True)
    kept.mkdir()
    (kept / "notes").write_text("mine")
    outside = place.root / "outside"
    outside.mkdir()
    paths = [deep.parent / "a", deep / "b", kept / "c", outside / "d", images / "e"]
    purge._remove_empty(list(map(str, paths)), str(images))
    assert sorted(path.name for path in images.iterdir()) == ["kept"]
    assert outside.exists()


def test_folders_stay_that_are_not_asked_for(place):  # noqa: F811
    place.guest(disk(place.base, "raw"))
    purge.purge(place.conn, "web1", images_dir=str(place.root))
    assert place.base.parent.is_dir()
    place.guest(disk(raw(place.base), "raw"), name="web2")
    purge.purge(place.conn, "web2", dirs=True)
    assert place.base.parent.is_dir(), "below no folder is none of ours"


def test_a_guest_that_libvirt_forgets_when_it_ends_is_not_undefined(place):  # noqa: F811
    text = place.guest(disk(place.base, "raw"), name="once").XMLDesc()
    place.conn.lookupByName("once").undefine()
    place.conn.createXML(text, 0)
    purge.purge(place.conn, "once", images_dir=str(place.root), dirs=True)
    assert not place.base.exists()
    assert "once" not in [dom.name() for dom in place.conn.listAllDomains()]
    assert not place.base.parent.exists()


def test_the_layers_and_the_memory_of_snapshots_go_with_the_guest(place):  # noqa: F811
    dom = place.guest(disk(place.base, "raw"))
    first = layer(dom, "one", place.base)
    second = create(f"{place.base.parent}/base.two", first, "qcow2")
    memory = place.root / "other" / "memory"
    memory.write_bytes(bytes(1024))
    text = MEMORY.format(memory=memory, path=second, domain=dom.XMLDesc(0))
    dom.snapshotCreateXML(text, libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE)
    found = purge.plan(place.conn, dom)
    assert found.delete == [first, str(second), str(memory)]
    assert str(place.base) not in found.keep, "what it was made from is no snapshot's"


def test_of_a_recorded_guest_all_above_its_disks_goes_and_nothing_below(place):  # noqa: F811
    below = raw(place.root / "images" / "below.raw")
    own = create(place.root / "data" / "vda.qcow2", below)
    dom = place.guest(disk(own))
    first = layer(dom, "one", own, "qcow2")
    second = create(f"{place.root}/data/vda.two", first, "qcow2")
    memory = raw(place.root / "other" / "memory")
    redefine(dom, MEMORY, memory=memory, path=second)
    dom = recorded(dom, own)
    found = purge.plan(place.conn, dom)
    assert found.delete == sorted([str(own), first, second, str(memory)])
    assert (found.keep, found.uncertain) == ({}, [])
    assert purge.plan(place.conn, dom, disks=purge.RECORDED_DISKS).delete == found.delete
    purge.purge(place.conn, "web1")
    assert not any(map(os.path.exists, found.delete))
    assert "web1" not in [dom.name() for dom in place.conn.listAllDomains()]


def test_a_layer_goes_of_which_no_snapshot_tells(place):  # noqa: F811
    """Whoever made it, with qemu-img or by a block job: the record names what is below it."""
    below = raw(place.root / "images" / "below.raw")
    own = create(place.root / "data" / "vda.qcow2", below)
    above = create(place.root / "data" / "vda.mine", own, "qcow2")
    dom = place.guest(disk(above), more=record(own))
    found = purge.plan(place.conn, dom)
    assert (found.delete, found.keep) == ([str(above), str(own)], {})


def test_an_own_disk_that_stays_is_named_as_unsure(place):  # noqa: F811
    dom = place.guest(disk(place.base, "raw"))
    create(place.above, place.base)
    place.guest(disk(place.above), name="db1")
    found = purge.plan(place.conn, dom)
    assert (found.delete, found.uncertain) == ([], [str(place.base)])


def test_of_a_recorded_guest_a_disk_that_was_added_stays_with_its_layers(place):  # noqa: F811
    own = create(place.root / "data" / "vda.qcow2")
    more = raw(place.root / "other" / "more.raw")
    lent = raw(place.root / "other" / "lent.raw")
    added = disk(more, "raw", "vdb") + disk(lent, "raw", "vdc", below="<readonly/>")
    dom = place.guest(disk(own) + added, more=record(own))
    above = create(place.root / "other" / "more.one", more)
    text = MEMORY.replace("<parent><name>one</name></parent>", "").replace("'vda'", "'vdb'")
    text = text.replace("<disks>", "<disks><disk name='vda' snapshot='no'/>")
    redefine(dom, text, memory="/nowhere/memory", path=above)
    found = purge.plan(place.conn, dom)
    assert found.delete == ["/nowhere/memory", str(own)]
    assert found.keep == {
        str(more): f"used by {above}", str(above): purge.NOT_MADE,
        str(lent): "attached read-only",
    }  # fmt: skip
    assert found.uncertain == []
    nothing = purge.plan(place.conn, dom, disks=purge.NO_DISKS)
    assert nothing.delete == []
    assert nothing.keep[str(own)] == "not requested"
    assert nothing.keep[str(more)] == purge.NOT_MADE


def test_without_a_record_what_was_made_is_nothing_snapshots_and_memory_included(place):  # noqa: F811
    dom = place.guest(disk(place.base, "raw"))
    first = layer(dom, "one", place.base)
    memory = raw(place.root / "other" / "memory")
    second = create(f"{place.base.parent}/base.two", first, "qcow2")
    redefine(dom, MEMORY, memory=memory, path=second)
    found = purge.plan(place.conn, dom, disks=purge.RECORDED_DISKS)
    assert found.delete == []
    used = f"used by {second}"
    assert found.keep == {first: used, str(second): purge.NOT_MADE, str(memory): purge.NOT_MADE}


def test_one_definition_with_a_record_is_enough(place):  # noqa: F811
    """What runs may be from before the record, or the other way round."""
    more = raw(place.root / "other" / "more.raw")
    text = place.guest(disk(place.base, "raw") + disk(more, "raw", "vdb")).XMLDesc()
    dom = place.conn.lookupByName("web1")
    dom.create()
    place.conn.defineXML(text.replace("<os>", f"{record(place.base)}<os>"))
    assert "saltvirt" not in dom.XMLDesc(0)
    found = purge.plan(place.conn, dom)
    assert (found.delete, found.keep) == ([str(place.base)], {str(more): purge.NOT_MADE})


def test_snapshots_without_files_of_their_own_are_nothing_to_delete(place):  # noqa: F811
    dom = place.guest(disk(place.base, "raw"))
    redefine(dom, NO_FILES)
    redefine(dom, ON_A_DEVICE)
    assert len(dom.listAllSnapshots()) == 2
    assert purge._snapshot_files(dom) is not None
    found = purge.plan(place.conn, dom)
    assert (found.delete, found.keep) == ([str(place.base)], {})


def test_an_image_in_the_folder_of_images_keeps_what_it_stands_on(place):  # noqa: F811
    """No guest and no pool names it, and it lies beside none of the guest's disks."""
    deep = place.root / "images" / "db1"
    deep.mkdir()
    above = create(deep / "vda.qcow2", place.base)
    dom = place.guest(disk(place.base, "raw"))
    found = purge.plan(place.conn, dom, str(place.root / "images" / "_base"))
    assert (found.delete, found.keep) == ([], {str(place.base): f"used by {above}"})


def test_a_volume_goes_by_its_pool(place):  # noqa: F811
    """libvirt's test driver takes it off its list, and touches no file."""
    pool = place.pool("there", place.base.parent, start=True)
    pool.createXML("<volume><name>base.raw</name><capacity>1024</capacity></volume>", 0)
    place.guest(disk(place.base, "raw"))
    assert purge.purge(place.conn, "web1").delete == [str(place.base)]
    assert pool.listVolumes() == []
    assert place.base.exists()


def test_a_guest_that_is_being_made_is_not_purged(place):  # noqa: F811
    text = record(place.base, creating=metadata.worker())
    dom = place.guest(disk(place.base, "raw"), more=text)
    with pytest.raises(errors.OperationFailed, match="cannot purge web1: it is being created"):
        purge.purge(place.conn, "web1")
    assert place.base.exists()
    place.conn.defineXML(dom.XMLDesc(0).replace(metadata.worker(), "1:1:another boot"))
    assert purge.purge(place.conn, "web1").delete == [str(place.base)]
