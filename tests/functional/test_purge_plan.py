"""What a purge takes, what it leaves and says, on libvirt's test driver."""

import logging
import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.domain import purge
from tests.functional.test_snapshots_shared import layer
from tests.functional.test_usage import create, disk, place  # noqa: F401

EMPTY = "<disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>"
FAR = """<disk type='network'><driver name='qemu' type='raw'/><source protocol='nbd' name='x'>
<host name='nas'/></source><target dev='vdz'/></disk>"""

MEMORY = """<domainsnapshot><name>two</name><state>running</state><creationTime>9</creationTime>
<parent><name>one</name></parent><memory snapshot='external' file='{memory}'/><disks>
<disk name='vda' snapshot='external' type='file'><driver type='qcow2'/>
<source file='{path}'/></disk>
</disks>{domain}</domainsnapshot>"""


def test_a_drive_without_a_medium_and_a_disk_of_a_server_are_nothing_to_delete(place):  # noqa: F811
    dom = place.guest(EMPTY + FAR + disk(place.base, "raw"))
    found = purge.plan(place.conn, dom)
    assert (found.delete, found.keep) == ([str(place.base)], {})


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
        str(paths["iso"]): "a cdrom's medium",
        str(paths["lent"]): "attached read-only",
        str(paths["both"]): "shared",
    }
    again = purge.plan(place.conn, dom, disks=purge.NONE).keep
    assert again[str(paths["both"])] == "shared"
    dom = place.guest(disk(place.base, "raw"), name="web2")
    assert purge.plan(place.conn, dom, disks=purge.NONE).keep == {str(place.base): purge.NOT_MADE}
    made = purge.plan(place.conn, dom, disks=purge.MADE).keep
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
    assert (found.delete, found.keep) == ([str(near)], {str(image): "an image of the cache"})


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
    assert f"purge of web1: {lent} is left, attached read-only" in caplog.messages


def test_only_a_file_is_deleted_as_one(place, caplog):  # noqa: F811
    pipe = place.root / "pipe"
    os.mkfifo(pipe)
    purge.delete_file(str(pipe))
    purge.delete_file(str(place.root / "data"))
    assert pipe.exists()
    assert f"{pipe} is no file and in no storage pool: it is left" in caplog.messages
    purge.delete_file(str(place.root / "gone"))
    with pytest.raises(errors.OperationFailed, match=r"cannot delete .*: Not a directory"):
        purge.delete_file(str(place.base / "x"))
    link = place.root / "link"
    link.symlink_to(place.base)
    purge.delete_file(str(link))
    assert (link.is_symlink(), place.base.exists()) == (True, True)


def test_nothing_is_deleted_on_another_machine(place, monkeypatch):  # noqa: F811
    monkeypatch.setattr(purge.connection, "is_local", lambda conn: False)
    with pytest.raises(errors.OperationFailed, match="no storage pool of the host has it"):
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
