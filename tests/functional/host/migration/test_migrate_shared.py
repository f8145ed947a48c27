"""Proofs of shared storage: marker files of two hosts, device numbers, volumes of pools."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.host.migration import block_devices, facts, remote_storage, shared_folders, volumes
from saltvirt.migration.facts import (
    DeviceIdentity,
    DiskReport,
    GuestReport,
    LocationReport,
    PoolReport,
)
from saltvirt.system import tools
from tests.clock import Clock

NOBODY = 65534


class Pool:
    """The other host's pool on a folder; of what it remembers only ``shown`` is listed."""

    def __init__(self, folder, shown=True, writable=True):
        self.folder, self.shown, self.writable = folder, shown, writable

    def refresh(self, flags):
        assert flags == 0
        if self.shown is not None and not isinstance(self.shown, bool):
            self.shown = True  # what it remembered has grown old

    def XMLDesc(self, _flags=0):
        return "<pool type='dir'/>"

    def storageVolLookupByName(self, name):
        if self.shown is True and os.path.exists(f"{self.folder}/{name}"):
            return Volume(f"{self.folder}/{name}")
        error = libvirt.libvirtError("no volume")
        error.err = (libvirt.VIR_ERR_NO_STORAGE_VOL, 0, "no volume", 0, "", None, None, -1, -1)
        raise error

    def createXML(self, xml, _flags):
        assert "<capacity unit='bytes'>0</capacity>" in xml.replace('"', "'")
        path = f"{self.folder}/{xml.partition('<name>')[2].partition('<')[0]}"
        words = None if self.writable else "Permission denied"
        if words is None and os.path.exists(path):
            words = "File exists"
        if words:
            libvirt.virResetLastError()  # else the message is that of another test's error
            error = libvirt.libvirtError(words)
            error.err = (38, 0, f"cannot create path '{path}': {words}", 0, "", None, None, -1, -1)
            raise error
        with open(path, "x", encoding="ascii"):
            return Volume(path)


class Volume:
    def __init__(self, path):
        self.path = path

    def delete(self, flags):
        assert flags == 0
        os.unlink(self.path)


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "here" / "web1.qcow2"
    path.parent.mkdir()
    path.touch()
    return str(path)


@pytest.mark.parametrize(
    ("shown", "writable"),
    [(True, True), (True, False), (False, True)],
    ids=["seen", "seen where it may not write", "in the way though not yet seen"],
)
def test_a_folder_of_both_is_known_by_the_marker(disk, shown, writable):
    folder = os.path.dirname(disk)
    with shared_folders.place_markers([disk]) as marks:
        found = shared_folders.same(Pool(folder, shown, writable), marks[folder], "ext4")
        assert found == (True, None)
        assert re.fullmatch("salt-virt-marker-[0-9a-f]{16}", marks[folder])
    assert os.listdir(folder) == ["web1.qcow2"]


def test_the_marks_of_migrations_that_were_killed_are_tidied(disk):
    """Only what is surely one, and old by the clock of who has the folder."""
    made = {
        "salt-virt-marker-0123456789abcdef": shared_folders._TEXT + "\n",
        "salt-virt-marker-0123456789abcde0": "",  # made there by the other host
        "salt-virt-marker-0123456789abcde1": "somebody's",
        "salt-virt-marker-of-mine": shared_folders._TEXT + "\n",
        "salt-virt-marker-0123456789abcde2": shared_folders._TEXT + "\n",  # of one at work
    }
    folder = Path(disk).parent
    link = folder / "salt-virt-marker-0123456789abcde3"
    for name, text in made.items():
        (folder / name).write_text(text)
        if not name.endswith("2"):
            os.utime(folder / name, (1, 1))
    link.symlink_to(disk)
    os.utime(link, (1, 1), follow_symlinks=False)
    pipe = folder / "salt-virt-marker-0123456789abcde4"
    os.mkfifo(pipe)
    os.utime(pipe, (1, 1))
    with shared_folders.place_markers([disk]):
        pass
    assert set(os.listdir(folder)) == {*list(made)[2:], link.name, pipe.name, "web1.qcow2"}


@pytest.mark.parametrize("owner", [None, (NOBODY, NOBODY)])
def test_a_mark_is_tidied_as_its_owner(disk, monkeypatch, owner):
    """root may be nobody on the server, who takes nothing away there."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    left, ran = Path(disk).parent / "salt-virt-marker-0123456789abcdef", []
    left.touch()
    os.chown(left, *(owner or (0, 0)))
    os.utime(left, (1, 1))

    def run(argv, _what, user, timeout_s):
        ran.append((argv, user, timeout_s))
        return tools.run(argv, "it", timeout_s=timeout_s)

    monkeypatch.setattr(shared_folders, "tools", SimpleNamespace(run=run))
    with shared_folders.place_markers([disk]):
        assert ran[-1] == (("rm", "-f", str(left)), owner, 60)
    assert os.listdir(left.parent) == ["web1.qcow2"]


def test_a_mark_that_became_a_link_or_a_pipe_meanwhile_is_none(disk):
    """What it was when it was looked at is no promise: nothing is followed, or waited for."""
    mark, pipe = Path(disk).parent / "mark", Path(disk).parent / "pipe"
    mark.symlink_to(disk)
    with pytest.raises(OSError, match="symbolic links"):
        shared_folders._is_mark(mark)
    os.mkfifo(pipe)
    shared_folders._is_mark(pipe)
    assert not shared_folders.is_hidden(str(pipe))


def test_a_disk_that_is_not_there_yet_has_its_mark_beside_its_place(disk):
    os.unlink(disk)
    with shared_folders.place_markers([disk]) as marks:
        assert os.listdir(os.path.dirname(disk)) == [*marks.values()] != []


def test_a_file_that_is_mounted_there_has_no_mark_beside_it(disk, monkeypatch):
    """Its folder is on another file system, of which the mark would tell."""
    real = os.stat

    def stat(path, **how):
        found = real(path, **how)
        return SimpleNamespace(st_dev=-1) if path == disk else found

    with monkeypatch.context() as patch:
        patch.setattr(shared_folders.os, "stat", stat)
        assert not shared_folders._same_device(os.path.dirname(disk), disk)
    assert shared_folders._same_device(os.path.dirname(disk), disk)


def test_who_may_not_write_is_followed_by_who_may(disk, monkeypatch):
    """The folder's owner, then the disk's."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(disk, NOBODY, NOBODY)
    asked = []

    def run(argv, _what, user, timeout_s):
        asked.append(user)
        if user != (NOBODY, NOBODY):
            raise errors.OperationFailed("permission denied")
        return tools.run(argv, "it", timeout_s=timeout_s)

    monkeypatch.setattr(shared_folders, "tools", SimpleNamespace(run=run))
    with shared_folders.place_markers([disk]) as marks:
        assert len(marks) == 1
    assert asked == [None, (0, 0), *[(NOBODY, NOBODY)] * 2]


def test_an_equal_path_of_another_file_system_is_known_by_the_marker(disk, tmp_path):
    other = tmp_path / "there"
    other.mkdir()
    with shared_folders.place_markers([disk]) as marks:
        [mark] = marks.values()
        assert shared_folders.same(Pool(str(other)), mark, "nfs4") == (False, None)
    assert os.listdir(other) == []


def test_what_the_target_remembers_of_a_network_file_system_grows_old(disk, monkeypatch):
    """NFS shows a new file after up to a minute; where it may not write nothing else tells."""
    monkeypatch.setattr(shared_folders, "time", Clock())
    folder = os.path.dirname(disk)
    with shared_folders.place_markers([disk]) as marks:
        old = Pool(folder, shown="later", writable=False)
        assert shared_folders.same(old, marks[folder], "nfs4") == (True, None)
        old = Pool(folder, shown="later", writable=False)
        shared, why = shared_folders.same(old, marks[folder], "ext4")
    assert shared is None
    assert "the target cannot create a file beside it" in why


def test_without_a_marker_nothing_is_known(disk):
    shared, why = shared_folders.same(Pool(os.path.dirname(disk)), None, "nfs4")
    assert shared is None
    assert "no marker file could be created beside it" in why


def test_the_marker_is_written_as_who_may_where_root_is_nobody(disk, monkeypatch):
    """root_squash: root may not write, the owner of the folder or of the disk may."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    folder = os.path.dirname(disk)
    os.chown(disk, NOBODY, NOBODY)
    os.chmod(folder, 0o777)
    as_root = shared_folders._run
    monkeypatch.setattr(
        shared_folders,
        "_run",
        lambda owner, *argv: owner not in (None, (0, 0)) and as_root(owner, *argv),
    )
    for above in Path(folder).parents:  # pytest's own, and it closes the upper ones at each start
        if above.stat().st_uid == 0 and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    with shared_folders.place_markers([disk]) as marks:
        [mark] = marks.values()
        assert os.stat(f"{folder}/{mark}").st_uid == NOBODY
    assert os.listdir(folder) == ["web1.qcow2"]


def test_a_file_that_root_may_not_read_is_known(disk, monkeypatch):
    assert shared_folders.is_hidden(disk) is False
    assert shared_folders.is_hidden(f"{disk}.gone") is False

    def deny(*_args):
        raise PermissionError(13, "Permission denied")

    for call in ("open", "pread", "close"):
        with monkeypatch.context() as patch:
            patch.setattr(shared_folders.os, call, deny)
            hidden = shared_folders.is_hidden(disk)
        assert hidden


def test_a_link_to_a_file_elsewhere_is_not_proven_by_the_folder_of_the_link(disk, tmp_path):
    link = tmp_path / "shared" / "web1.qcow2"
    link.parent.mkdir()
    link.symlink_to(disk)
    with shared_folders.place_markers([str(link)]) as marks:
        mark = marks[str(link.parent)]
        assert os.listdir(link.parent) == ["web1.qcow2"]
        found = shared_folders.same(Pool(str(link.parent)), mark, "ext4")
        assert found == (False, None)
        assert shared_folders.file_proof(str(link), found) == found  # a link adds no doubt to a no
        shared, why = shared_folders.file_proof(str(link), (True, None))
        assert shared is None and "is a link to" in why
        assert shared_folders.file_proof(disk, (True, None)) == (True, None)


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_a_link_is_not_proven_by_a_neighbour_in_the_shared_folder(tmp_path, conn, names):
    """The target shares the folder, and has another file where the link leads: its own."""
    folder, local = tmp_path / "shared", tmp_path / "local"
    folder.mkdir()
    local.mkdir()
    (folder / "a").touch()
    (local / "b").touch()
    (folder / "b").symlink_to(local / "b")
    disks = tuple(_file(folder / name) for name in names)
    report = GuestReport("web1", "u", "hv1", True, "running", disks=disks)
    there = remote_storage.open_pool(conn, str(folder))
    with facts.marked(report) as marks, there as pool:
        for name in ("a", "b", *marks.values()):
            remote_storage.create(pool, str(folder / name), "raw", 0)
        proof = shared_folders.same(pool, marks[str(folder)], "nfs4")
        seen = [facts._path(pool, str(folder / name), proof) for name in "ab"]
        assert marks[str(folder)] in os.listdir(folder)
    assert [one.shared for one in seen] == [True, None]
    assert "is a link to" in seen[1].reason


def _file(path):
    return DiskReport("vda", "file", str(path))


def test_which_file_system_a_path_is_on(tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        f"2 1 0:50 / {tmp_path} rw - nfs4 nas:/vol rw\n"
        "3 1 0:51 / /srv/with\\040space rw - xfs /dev/sdb rw\n"
    )
    mounts = str(mounts)
    assert shared_folders.file_system(f"{tmp_path}/web1.qcow2", mounts) == "nfs4"
    assert shared_folders.file_system(f"{tmp_path}more/web1.qcow2", mounts) == "ext4"
    assert shared_folders.file_system("/srv/with space/a", mounts) == "xfs"
    Path(mounts).write_text("")
    assert shared_folders.file_system("/srv/with space/a", mounts) is None


def test_a_device_is_read_whole(tmp_path, monkeypatch):
    """It tells neither its size to stat nor its holes."""
    path = tmp_path / "disk.raw"
    with open(path, "wb") as file:
        file.seek(2**20)
        file.write(b"x" * 4096)
        file.truncate(2**21)
    with open(path, "rb") as file:
        assert sum(size for data, _, size in remote_storage._sections(file) if data) < 2**20
        monkeypatch.setattr(remote_storage.stat, "S_ISREG", lambda _mode: False)
        assert list(remote_storage._sections(file)) == [(True, 0, 2**21)]


@pytest.mark.parametrize("folder", ["/dev", "/dev/mapper", "/sys/block", "/proc"])
def test_no_pool_of_ours_ever_opens_devices(conn, folder):
    before = len(conn.listAllStoragePools())
    with remote_storage.open_pool(conn, folder) as pool:
        assert pool is None
    assert remote_storage.delete(conn, f"{folder}/watchdog") is False
    assert len(conn.listAllStoragePools()) == before


def test_a_volume_whose_pool_is_off_is_in_trouble(conn):
    pool = conn.storagePoolLookupByName("default-pool")
    assert "no storage vol" in volumes.inspect_local(conn, named("default-pool")).error
    assert "none" in volumes.inspect_local(conn, named("none")).error
    pool.destroy()
    assert "not started" in volumes.inspect_local(conn, named("default-pool")).error
    pool.create(0)


def named(pool):
    return DiskReport("vda", "volume", "gone", pool=PoolReport(pool), volume="gone")


def there(conn, mark, **pool):
    about = PoolReport(**{"name": "default-pool", "type": "dir", "folder": "/x", **pool})
    disk = DiskReport("vda", "file", "/default-pool/web1", volume="web1", fs="ext4", pool=about)
    return volumes.inspect_remote(conn, disk, about, mark)


@pytest.mark.parametrize(
    ("pool", "words"),
    [({"name": "none"}, "has no storage pool none"), ({"type": "logical"}, "is of type dir on")],
)
def test_a_pool_of_the_target_that_will_not_do(conn, pool, words):
    found, free = there(conn, None, **pool)
    assert words in found.error
    assert found.shared is None
    assert free is None


def test_a_pool_of_the_target_that_is_off_will_not_do(conn):
    pool = conn.storagePoolLookupByName("default-pool")
    pool.destroy()
    found, free = there(conn, None)
    pool.create(0)
    assert found.error.startswith("storage pool default-pool on ")
    assert found.error.endswith(" is not started")
    assert (found.shared, free) == (None, None)


def test_where_a_volume_comes_to_lie(conn):
    found, free = there(conn, "a-marker-that-is-not-there")
    assert found == LocationReport(False, False, path="/default-pool/web1", pool="default-pool")
    assert free > 0


class Node:
    """A disk as libvirt's node devices show it."""

    def __init__(self, path, serial, *links):
        links = "".join(f"<devnode type='link'>{link}</devnode>" for link in links)
        self.xml = (
            f"<device><devnode type='dev'>{path}</devnode>{links}<capability type='storage'>"
            f"<block>{path}</block><serial>{serial}</serial></capability></device>"
        )

    def XMLDesc(self, _flags):
        return self.xml


class Host:
    """A host whose disks are in no pool."""

    def __init__(self, *nodes):
        self.nodes = nodes

    def storageVolLookupByPath(self, path):
        raise libvirt.libvirtError(path)

    def listAllDevices(self, _flags):
        return self.nodes


def test_a_lun_is_known_by_its_number_whatever_the_kernel_calls_it():
    wwn = "3600140512345678abcdefabcdefabcde"
    link = f"/dev/disk/by-id/wwn-0x{wwn[1:]}"
    one = Host(Node("/dev/sda", "1ATA_local"), Node("/dev/sdb", wwn, link))
    two = Host(Node("/dev/sdc", wwn, link), Node("/dev/sdb", "QM00001"))
    assert block_devices.identity(one, link) == block_devices.identity(two, link)
    assert block_devices.identity(one, "/dev/sdb") != block_devices.identity(two, "/dev/sdb")
    assert block_devices.identity(two, "/dev/sdb") == DeviceIdentity(None, (None,))
    part = block_devices.identity(one, f"{link}-part2")
    assert part == block_devices.identity(two, "/dev/sdc2")
    assert part != block_devices.identity(one, f"{link}-part1")
    assert part != block_devices.identity(one, link)


def test_an_unreadable_file_is_a_sentence(tmp_path):
    with pytest.raises(errors.OperationFailed, match="cannot read"):
        remote_storage.begin_upload(None, str(tmp_path / "gone"))


def test_a_marker_on_another_file_system_than_the_file_is_none(disk, monkeypatch):
    assert not shared_folders._same_device("/nowhere/marker", disk), "what cannot be told"
    monkeypatch.setattr(shared_folders, "_same_device", lambda *_: False)
    with shared_folders.place_markers([disk]) as marks:
        assert marks == {}
        assert os.listdir(os.path.dirname(disk)) == ["web1.qcow2"]


class Broken(Pool):
    """A pool of ours that another migration took for left, and ended."""

    def refresh(self, _flags):
        raise libvirt.libvirtError("no storage pool")


@pytest.mark.parametrize(("kept_s", "slept"), [(6, [2, 2, 2]), (7, [2, 2, 2, 2])])
def test_the_target_is_looked_at_until_what_it_remembers_must_be_old(
    disk, monkeypatch, kept_s, slept
):
    clock = Clock()
    monkeypatch.setattr(shared_folders, "time", clock)
    monkeypatch.setattr(shared_folders, "CACHED_S", kept_s)
    pool = Pool(os.path.dirname(disk), shown=None, writable=False)
    shared_folders.same(pool, "salt-virt-marker-x", "nfs4")
    assert clock.slept == slept


@pytest.mark.parametrize("kind", [Pool, Broken])
def test_what_never_appears_on_the_target_proves_nothing(disk, monkeypatch, kind):
    monkeypatch.setattr(shared_folders, "time", Clock())
    folder = os.path.dirname(disk)
    with shared_folders.place_markers([disk]) as marks:
        pool = kind(folder, shown=None, writable=False)
        shared, why = shared_folders.same(pool, marks[folder], "nfs4")
    assert shared is None
    assert "does not show the marker file" in why


def test_a_folder_where_nobody_may_write_proves_nothing():
    assert shared_folders._mark("/proc/self/status") is None
