"""The journal of disks that are being created, and the cleanup after their process died."""

import json
import os
import stat
from dataclasses import replace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.answers.guests import OrphanedDisks
from saltvirt.host.domain import metadata, purge
from saltvirt.host.provision import disk_build, disk_journal, existing_disk
from saltvirt.host.storage import file_mark, sharing, usage
from saltvirt.system import bounded_io, message_file
from tests.functional.host.storage.test_usage import create, disk, place  # noqa: F401

DEAD = "1:0:gone"


@pytest.fixture
def at(place, tmp_path, monkeypatch):  # noqa: F811
    """A Place whose notes are in a folder of their own, which is not there yet."""
    monkeypatch.setattr(disk_journal, "FOLDER", str(tmp_path / "notes" / "making"))
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: None)
    place.monkeypatch = monkeypatch
    place.own = place.root / "other" / "web1_data.raw"
    place.died = lambda *works: died(place, *works or [work(place.own)])
    place.left = lambda **more: disk_journal.find_leftovers(place.conn, "web1", **more)
    place.remove = lambda **more: disk_journal.remove(place.conn, "web1", **more)
    return place


def died(at, *works):
    """The Note of an update that died when it had just written down what it makes."""
    with at.monkeypatch.context() as patch:
        patch.setattr(metadata, "worker", lambda: DEAD)
        return disk_journal.DiskJournal("web1", "virt.update", works)


def work(path=None, pool=None, volume=None):
    path = str(path) if path else None
    return disk_build.DiskBuild(None, make=True, path=path, pool=pool, volume=volume)


def made(at, note, path=None, data=b"half"):
    """A file that the one who died has made."""
    path = path or at.own
    path.write_bytes(data)
    note.mark(path)
    return path


def test_a_note_says_who_makes_what(at):
    note = disk_journal.DiskJournal("web1", "virt.update", [work(at.own), work(None, "there", "v")])
    told = disk_journal.read("web1")
    assert (told.operation, metadata.works(told.worker)) == ("virt.update", True)
    mark = told.disks[0].mark
    assert len(mark) == 32
    with open(disk_journal._path("web1"), encoding="utf-8") as file:
        assert json.load(file)["disks"] == [
            {"path": str(at.own), "pool": None, "volume": None, "mark": mark, "key": None},
            {"path": None, "pool": "there", "volume": "v", "mark": mark, "key": None},
        ]
    assert stat.S_IMODE(os.stat(disk_journal.FOLDER).st_mode) == 0o700
    note.end(["not undone"])
    assert disk_journal.read("web1") == told
    note.end()
    assert disk_journal.read("web1") is None
    note.end()


def test_a_block_device_was_there_before(at, monkeypatch):
    monkeypatch.setattr(existing_disk, "is_block", lambda path: path == "/dev/vdx")
    disk_journal.DiskJournal("web1", "virt.update", [work("/dev/vdx"), work(at.own)])
    assert [one.path for one in disk_journal.read("web1").disks] == [str(at.own)]


def test_what_an_earlier_one_left_stays_written_down(at):
    at.died()
    note = disk_journal.DiskJournal("web1", "virt.clone", [work(at.root / "new")])
    assert [one.path for one in disk_journal.read("web1").disks] == [
        str(at.own), str(at.root / "new")
    ]  # fmt: skip
    note.end()
    assert [one.path for one in disk_journal.read("web1").disks] == [str(at.own)]


@pytest.mark.parametrize("name", ["../web1", "a/b", "a\0b"])
def test_a_name_that_leads_elsewhere_has_no_note(at, name):
    with pytest.raises(errors.InvalidInput, match="is not a valid name of a guest"):
        disk_journal.read(name)


def test_while_its_maker_works_nothing_is_left(at):
    note = disk_journal.DiskJournal("web1", "virt.update", [work(at.own)])
    made(at, note)
    assert disk_journal.unfinished(at.conn) == {}


def test_what_is_marked_and_used_by_nobody_goes(at):
    made(at, at.died())
    found = OrphanedDisks("virt.update", (str(at.own),), {})
    assert disk_journal.unfinished(at.conn) == {"web1": found}
    left = at.remove()
    assert (left.delete, left.keep, at.own.exists()) == ([str(at.own)], {}, False)
    assert disk_journal.read("web1") is None
    assert disk_journal.unfinished(at.conn) == {}
    assert (at.remove().delete, at.left().delete) == ([], [])


def test_what_is_not_there_yet_is_nothing(at):
    at.died()
    assert disk_journal.unfinished(at.conn) == {}
    assert (at.left().delete, at.left().keep) == ([], {})
    at.remove()
    assert disk_journal.read("web1") is None


def test_a_note_that_ended_while_they_were_listed_is_none(at, monkeypatch):
    made(at, at.died())
    monkeypatch.setattr(disk_journal, "read", lambda name: None)
    assert disk_journal.unfinished(at.conn) == {}


def test_what_a_pool_no_longer_tells_is_where_it_was_made(at, monkeypatch):
    monkeypatch.setattr(disk_journal, "_in_pool", lambda conn, pool, volume: None)
    path = str(made(at, at.died(work(at.own, "there", "v"))))
    assert at.left().delete == [path]


@pytest.mark.parametrize("how", ["no mark", "another's mark", "a folder", "a link", "empty"])
def test_what_is_not_proven_stays(at, how):
    note = at.died()
    if how == "a folder":
        at.own.mkdir()
        note.mark(at.own)
    elif how == "a link":
        at.own.symlink_to(made(at, note, at.root / "data" / "mine"))
        at.own = at.root / "data" / "mine"
        file_mark.put(at.own, "0" * 32)
    else:
        at.own.write_bytes(b"" if how == "empty" else b"theirs")
        if how == "another's mark":
            file_mark.put(at.own, "0" * 32)
    expected = {str(at.own): disk_journal._UNPROVEN}
    assert (at.left().delete, at.left().keep) == ([], expected)
    found = OrphanedDisks("virt.update", (), expected)
    assert disk_journal.unfinished(at.conn) == {"web1": found}
    assert at.remove().keep == expected
    assert at.own.exists()
    assert [one.path for one in disk_journal.read("web1").disks]


def test_a_part_that_had_just_begun_goes(at):
    """Before it has a mark it is empty; no other begins with a point and is nothing."""
    at.died()
    part = at.own.with_name(f".{at.own.name}.part")
    part.touch()
    assert at.left().delete == [str(part)]
    part.write_bytes(b"x")
    assert (at.left().delete, list(at.left().keep)) == ([], [str(part)])
    part.write_bytes(b"")
    at.remove()
    assert not part.exists()


def test_of_two_disks_the_one_that_stays_is_still_written_down(at):
    second = at.root / "other" / "web1_more.raw"
    note = at.died(work(at.own), work(second))
    made(at, note)
    second.write_bytes(b"theirs")
    left = at.remove()
    assert (left.delete, list(left.keep)) == ([str(at.own)], [str(second)])
    assert (at.own.exists(), second.exists()) == (False, True)
    assert [one.path for one in disk_journal.read("web1").disks] == [str(second)]


def test_what_a_guest_has_by_now_is_its_own(at):
    made(at, at.died())
    at.guest(disk(at.own, "raw"), name="db1")
    assert (at.left().delete, at.left().keep, at.left().extra_links) == ([], {}, [])
    assert disk_journal.unfinished(at.conn) == {}
    at.remove()
    assert at.own.exists()
    assert disk_journal.read("web1") is None


def test_what_a_guest_begins_to_use_meanwhile_is_its_own(at, monkeypatch):
    made(at, at.died())
    real = usage.prevent_open

    def late(conn, paths):
        at.guest(disk(at.own, "raw"), name="db1")
        return real(conn, paths)

    monkeypatch.setattr(usage, "prevent_open", late)
    at.remove()
    assert at.own.exists()


def test_what_an_image_begins_to_stand_on_meanwhile_is_kept_and_named(at, monkeypatch):
    made(at, at.died())
    above, real = at.root / "other" / "above.qcow2", usage.prevent_open

    def late(conn, paths):
        create(above, at.own)
        return real(conn, paths)

    monkeypatch.setattr(usage, "prevent_open", late)
    assert at.remove().keep == {str(at.own): f"used by {above}"}
    assert at.own.exists()
    assert disk_journal.read("web1")


def test_an_image_that_stands_on_it_keeps_it(at):
    made(at, at.died())
    above = create(at.root / "other" / "above.qcow2", at.own)
    assert at.left().keep == {str(at.own): f"used by {above}"}
    at.remove()
    assert at.own.exists()
    assert disk_journal.read("web1")


def test_what_somebody_has_open_stays(at, monkeypatch):
    made(at, at.died())
    monkeypatch.setattr(usage, "open_reason", lambda conn, path: "it is open")
    assert at.remove().keep == {str(at.own): "it is open"}
    assert at.own.exists()
    assert disk_journal.read("web1")


def test_what_other_hosts_may_have_is_for_them_to_say(at, monkeypatch):
    made(at, at.died())
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "nfs at /data")
    assert list(at.left().shared) == [str(at.own)]
    found = OrphanedDisks("virt.update", (str(at.own),), {})
    assert disk_journal.unfinished(at.conn) == {"web1": found}
    at.remove()
    assert at.own.exists()
    at.remove(unused=[str(at.own)])
    assert not at.own.exists()


@pytest.fixture
def second(at):
    """A guest's disk whose making was killed between its two names."""
    note = at.died()
    made(at, note)
    part = at.own.with_name(f".{at.own.name}.part")
    os.link(at.own, part)
    at.guest(disk(at.own, "raw"), name="web1")
    return part


def test_the_second_name_of_a_guests_disk_goes(at, second):
    assert (at.left().extra_links, at.left().delete, at.left().keep) == ([str(second)], [], {})
    found = OrphanedDisks("virt.update", (str(second),), {})
    assert disk_journal.unfinished(at.conn) == {"web1": found}
    at.remove()
    assert (at.own.exists(), second.exists()) == (True, False)
    assert disk_journal.read("web1") is None


def test_a_second_name_that_somebody_means_stays(at, second):
    at.guest(disk(second, "raw"), name="db1")
    assert at.left().extra_links == []
    at.remove()
    assert second.exists()


def test_a_second_name_that_other_hosts_may_have_stays(at, second, monkeypatch):
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "nfs at /data")
    assert at.left().extra_links == []
    at.remove()
    assert second.exists()


def test_a_second_name_of_nobodys_file_is_no_second(at):
    made(at, at.died())
    os.link(at.own, at.root / "other" / "too")
    assert (at.left().extra_links, at.left().delete) == ([], [str(at.own)])


def test_a_file_of_one_name_that_a_guest_has_by_another_way_is_no_second(at):
    """A folder that is mounted twice: to take the name away would lose the file."""
    made(at, at.died())
    seen, used = os.stat(at.own), usage.Usage()
    used.add([("file", seen.st_dev, seen.st_ino)], usage.StorageUser("db1"))
    assert disk_journal._is_second_link(used, str(at.own)) is False
    os.link(at.own, at.root / "other" / "too")
    assert disk_journal._is_second_link(used, str(at.own)) is True


def test_a_device_that_a_guest_has_is_no_second_name(at):
    """It is one file by whatever name; it is not ours to remove."""
    device = "/dev/null"  # not root's to lose, where a change to what decides removes it
    if os.geteuid() == 0:
        device = str(at.root / "other" / "null")
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    at.died(work(device))
    at.guest(disk(device, "raw"), name="db1")
    assert at.left().extra_links == []
    os.mkfifo(at.own)
    os.link(at.own, at.root / "other" / "pipe")
    at.guest(disk(at.root / "other" / "pipe", "raw"), name="db2")
    at.died()
    assert at.left().extra_links == []


def test_of_what_does_not_answer_nothing_goes(at, monkeypatch):
    made(at, at.died())

    def silent(path):
        raise bounded_io.StorageTimeout(str(path))

    monkeypatch.setattr(bounded_io, "lexists", silent)
    assert at.left().delete == []
    assert str(at.own) in at.left().keep


def test_a_file_of_a_pool_that_libvirt_has_not_seen_goes(at):
    pool = at.pool("there", at.root / "data", start=True)
    path = at.root / "data" / "v.raw"
    note = at.died(work(None, "there", "v.raw"))
    made(at, note, path)
    assert pool.listVolumes() == []
    assert at.left().delete == [str(path)]
    pool.destroy()
    assert at.left().delete == [str(path)], "its folder is known without libvirt"
    at.remove()
    assert not path.exists()


LOGICAL = """<pool type='logical'><name>vg</name><source><name>vg</name>
<device path='/dev/nonexistent'/></source><target><path>/dev/vg</path></target></pool>"""


@pytest.fixture
def vg(at):
    """(the pool, its volume, the Note of who died): of the volume libvirt alone knows the path."""
    pool = at.conn.storagePoolDefineXML(LOGICAL, 0)
    pool.create(0)
    volume = pool.createXML("<volume><name>v</name><capacity>1024</capacity></volume>", 0)
    at.monkeypatch.setattr(usage, "is_there", lambda conn, path: not path.endswith(".part"))
    return pool, volume, at.died(work(None, "vg", "other"), work(None, "vg", "v"))


def test_a_volume_is_known_by_the_key_that_it_was_given(at, vg):
    _, volume, note = vg
    assert at.left().delete == []
    assert at.left().keep[volume.path()] == disk_journal._UNPROVEN
    note.volume(work(None, "vg", "v"), volume)
    assert [one.key for one in disk_journal.read("web1").disks] == [None, volume.key()]
    assert at.left().delete == [volume.path()]
    entry = disk_journal.read("web1")
    first, second = entry.disks
    entry = replace(entry, disks=(first, replace(second, key="another")))
    message_file.write(disk_journal._path("web1"), entry)
    assert at.left().delete == []


def test_a_volume_that_is_a_file_is_marked(at):
    pool = at.pool("there", at.root / "data", start=True)
    volume = pool.createXML("<volume><name>v</name><capacity>1024</capacity></volume>", 0)
    note = at.died(work(None, "there", "v"))
    path = at.root / "data" / "v"
    path.write_bytes(b"half")
    note.volume(work(None, "there", "v"), volume)
    assert disk_journal.read("web1").disks[0].key is None
    assert at.left().delete == [str(path)]


def test_of_a_pool_that_is_not_started_it_is_not_known(at, vg):
    pool, _, _ = vg
    pool.destroy()
    why = "storage pool vg is not started: start it first"
    assert at.left().keep == {"vg/v": why, "vg/other": why}
    told = disk_journal.unfinished(at.conn)["web1"]
    assert (told.disks, sorted(told.unsure)) == ((), ["vg/other", "vg/v"])
    at.remove()
    assert len(disk_journal.read("web1").disks) == 2


def test_a_pool_that_does_not_answer_is_named(at, vg, monkeypatch):
    def silent(pool):
        raise bounded_io.StorageTimeout("/dev/vg")

    monkeypatch.setattr(disk_journal.answers, "pool", silent)
    assert set(at.left().keep) == {"vg/v", "vg/other"}


def test_a_pool_that_is_gone_leaves_the_path_that_was_written_down(at):
    note = at.died(work(at.own, "gone", "v"), work(None, "gone", "v"))
    made(at, note)
    assert at.left().delete == [str(at.own)]
    assert at.left().keep == {}


def test_a_volume_on_a_server_is_by_its_name_alone(at):
    """It is not to be proven from here whose it is."""
    at.died(work("volumes/web1_data"))
    at.monkeypatch.setattr(usage, "is_there", lambda conn, path: True)
    left = at.left()
    assert (left.delete, left.keep) == ([], {"volumes/web1_data": disk_journal._UNPROVEN})


def test_a_volume_on_a_server_is_no_place_on_this_host(at, monkeypatch):
    monkeypatch.chdir(at.root)
    (at.root / "volumes").touch()
    made(at, at.died(work(at.own), work("volumes/web1_data")))
    assert at.left().delete == [str(at.own)]


def test_what_cannot_be_written_down_is_an_error(at):
    os.makedirs(os.path.dirname(disk_journal.FOLDER))
    os.symlink("nowhere", disk_journal.FOLDER)
    with pytest.raises(errors.OperationFailed, match="cannot record the disks of"):
        disk_journal.DiskJournal("web1", "virt.update", [work(at.own)])


def test_a_note_that_is_no_note_is_named(at):
    at.died()
    path = os.path.join(disk_journal.FOLDER, "web1.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{")
    with pytest.raises(errors.OperationFailed, match=r"web1\.json.* cannot be read") as said:
        at.left()
    unsure = {path: str(said.value)}
    told = OrphanedDisks("an operation", (), unsure)
    assert disk_journal.unfinished(at.conn) == {"web1": told}


def test_the_log_says_what_was_deleted(at, caplog):
    made(at, at.died())
    caplog.set_level("INFO", disk_journal.log.name)
    at.remove()
    assert f"{at.own}, created for web1 by virt.update, was deleted" in caplog.messages


def test_only_what_is_proven_twice_is_handed_to_the_deletion(at, monkeypatch):
    gone = []
    monkeypatch.setattr(purge, "delete_storage", lambda conn, path: gone.append(path))
    note = at.died(work(at.own), work(at.root / "other" / "b"))
    made(at, note)
    made(at, note, at.root / "other" / "b")
    at.remove()
    assert sorted(gone) == [str(at.root / "other" / "b"), str(at.own)]
