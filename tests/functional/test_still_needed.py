"""What no definition of this libvirt tells, or tells in another way, is not deleted either."""

import contextlib
import subprocess
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors  # noqa: E402
from saltvirt.host import identity, migrate_recover, named, purge, snapshot_needs  # noqa: E402
from saltvirt.host import volume as host_volume  # noqa: E402
from tests.functional.test_usage import create, disk, place  # noqa: E402, F401


@contextlib.contextmanager
def opened(path, format, *more):
    """QEMU's own block layer has it open, as a guest of another libvirt (qemu:///session) would."""
    argv = ["qemu-io", "-f", format, *more, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        one.stdin.write("length\n")
        one.stdin.flush()
        assert one.stdout.readline()
        yield
        one.communicate("quit\n")


@pytest.mark.parametrize("how", ["written", "read", "stood on"])
def test_purge_deletes_nothing_that_a_qemu_has_open(place, how):  # noqa: F811
    place.guest(disk(place.base, "raw"), name="old")
    path, format, more = place.base, "raw", ["-r"] if how == "read" else []
    if how == "stood on":  # by an image where nobody looks
        (place.root / "far").mkdir()
        path, format = create(place.root / "far" / "x.qcow2", place.base), "qcow2"
    with opened(path, format, *more):
        with pytest.raises(errors.OperationFailed, match=r"base.raw stays: .* has it open"):
            purge.purge(place.conn, "old")
        assert place.base.exists()
        place.conn.lookupByName("old")
    purge.purge(place.conn, "old")
    assert not place.base.exists()


def test_a_volume_that_a_qemu_has_open_is_not_deleted(place):  # noqa: F811
    pool = place.pool("there", place.base.parent, start=True)
    pool.createXML("<volume><name>base.raw</name><capacity>1024</capacity></volume>", 0)
    with opened(place.base, "raw"), pytest.raises(errors.InvalidInput, match="has it open"):
        host_volume.delete(place.conn, "there", "base.raw")
    assert host_volume.delete(place.conn, "there", "base.raw")


def test_disks_on_qemus_own_command_line_count():
    text = """<domain xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'><q:commandline>
    <q:arg value='-drive'/><q:arg value='file=/data/a.qcow2,if=virtio,media=disk'/>
    <q:arg value='{"driver":"raw","file":{"driver":"file","filename":"/data/b c.raw"}}'/>
    </q:commandline></domain>"""
    paths = {one.path for one in named.of_tree(ElementTree.fromstring(text))}
    assert {"/data/a.qcow2", "/data/b c.raw"} <= paths


@pytest.mark.parametrize("how", ["below", "link"])
def test_clean_up_on_the_target_leaves_what_a_guest_reaches_in_another_way(place, monkeypatch, how):  # noqa: F811
    """An image that came by a migration: a guest there stands on it, from another folder."""
    monkeypatch.setattr(migrate_recover.migrate_store, "delete", lambda conn, path: True)
    if how == "below":
        place.guest(disk(create(place.above, place.base)))
    else:
        link = place.root / "other" / "link"
        link.symlink_to(place.base)
        place.guest(disk(link, "raw"))
    assert migrate_recover.clean_target(place.conn, [str(place.base)]) == []
    place.conn.lookupByName("web1").undefine()
    place.above.unlink(missing_ok=True)
    assert migrate_recover.clean_target(place.conn, [str(place.base)]) == [str(place.base)]


def test_a_layer_on_which_an_image_stands_is_not_merged(place):  # noqa: F811
    """No guest names that image: its guest is undefined, or saved in a file."""
    layer = create(place.above, place.base)
    dom = place.guest(disk(layer), name="old")
    stake = snapshot_needs.Stake("virt.revert", {str(layer), str(place.base)})
    snapshot_needs.refuse(place.conn, dom, stake)
    create(place.root / "other" / "of-web1.qcow2", layer, "qcow2")
    with pytest.raises(errors.Refused, match=r"would be lost, and .*of-web1.qcow2 needs it"):
        snapshot_needs.refuse(place.conn, dom, stake)


def test_a_part_of_a_device_that_a_guest_has_whole_is_that_guests(place, monkeypatch):  # noqa: F811
    whole, part, other = (str(place.root / name) for name in ("sdb", "sdb1", "sdb2"))
    for path in (whole, part, other):
        create(path)
    monkeypatch.setattr(identity, "below", lambda path: [whole] if path in (part, other) else [])
    place.guest(disk(other, "raw"), name="beside")
    assert place.why(part) is None
    place.guest(disk(whole, "raw"))
    assert place.why(part) == "used by web1"
