"""A backup in the place of a guest, killed at each line: the guest is as it was or that of the
backup, its disks are whole, and the same verb goes on. On a libvirtd of our own; what a target
shows by NBD is a file here."""

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

import libvirt

from saltvirt import errors
from saltvirt.backups import chains
from saltvirt.backups.answers import ShownBackup, ShownDisk
from saltvirt.backupserve import look, over, restore
from saltvirt.host.domain import aside
from saltvirt.host.migration import departed
from saltvirt.host.provision import admission, disk_notes, guest_builder
from saltvirt.host.storage import usage
from saltvirt.xml.backup import Checkpoint, CheckpointDisk
from tests.functional import killing
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.test_killed import DISK, GUEST, MIB, Host

TARGETS = ("vda", "vdb")


def make(path, byte):
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, str(MIB)], check=True)
    subprocess.run(["qemu-io", "-f", "qcow2", "-c", f"write -q -P {byte} 0 64k", path], check=True)


def holds(path, byte):
    argv = ["qemu-io", "-U", "-r", "-f", "qcow2", "-c", f"read -P {byte} 0 64k", path]
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    return "read 65536" in said and "verification failed" not in said


class Over(Host):
    """What was is 1, what the backup has is 2."""

    FILES = ("backupserve/over.py", "host/domain/aside.py")

    def __init__(self, uri, folder):
        super().__init__(uri, folder)
        aside.FOLDER = str(folder / "aside")
        self.config = admission.AdmissionConfig.configured(self.modules["config.get"])
        restore.Restore._argv = lambda one, target, path: [
            "qemu-img", "convert", "-f", "qcow2", "-O", "qcow2", str(folder / f"{target}.b"), path,
        ]  # fmt: skip

    def old(self, target):
        return str(self.folder / f"{target}.old")

    def prepare(self):
        self.clear()
        for target in TARGETS:
            make(self.old(target), 1)
            make(str(self.folder / f"{target}.b"), 2)
        disks = "".join(DISK.format(format="qcow2", path=self.old(t), target=t) for t in TARGETS)
        with self.conn() as conn:
            conn.defineXML(GUEST.format(name="web1", disks=disks))

    def restore(self, only=None, stop=False):
        with self.conn() as conn:
            definition = conn.lookupByName("web1").XMLDesc(0)
            shown = tuple(ShownDisk(target, MIB) for target in TARGETS)
            backup = ShownBackup("000001-x", "web1", "hv2", 1, definition, shown, "")
            tools = guest_builder.Tools(self.config)
            wanted = guest_builder.GuestRequest("web1")
            return over.Over(conn, wanted, tools, backup, "", stop, only).run().to_answer()

    def undo(self):
        with self.conn() as conn:
            return over.undo(conn, self.config, "web1", False).left

    def confirm(self):
        with self.conn() as conn:
            return over.confirm(conn, self.config, "web1").delete

    def act(self):
        return self.restore()

    def disks(self):
        with self.conn() as conn:
            return sorted(over._tree(conn.lookupByName("web1")).iterfind("devices/disk/source"),
                          key=lambda one: one.get("file"))  # fmt: skip

    def is_old(self):
        """Of what is defined; all of it is whole."""
        paths = [one.get("file") for one in self.disks()]
        if paths == [self.old(target) for target in TARGETS]:
            assert all(holds(path, 1) for path in paths)
            return True
        assert len(paths) == len(TARGETS) and all(holds(path, 2) for path in paths), paths
        return False

    def nothing_is_left(self):
        assert os.listdir(self.images) == []
        assert [*aside.every()] == []
        assert disk_notes.read("web1") is None

    def after(self):
        assert all(holds(self.old(target), 1) for target in TARGETS)
        if self.is_old():
            self.restore()
        assert not self.is_old()
        with pytest.raises(errors.Refused, match="is still kept"):
            self.restore()
        assert self.undo() == ()
        assert self.is_old()
        self.nothing_is_left()


class Undone(Over):
    """The same of bringing it back."""

    def prepare(self):
        super().prepare()
        self.restore()

    def act(self):
        return self.undo()

    def after(self):
        if not self.is_old() or [*aside.every()]:
            assert self.undo() == ()
        assert self.is_old()
        self.nothing_is_left()


class Confirmed(Undone):
    """The same of what it had."""

    def act(self):
        return self.confirm()

    def after(self):
        assert not self.is_old()
        if [*aside.every()]:
            self.confirm()
        assert not any(Path(self.old(target)).exists() for target in TARGETS)
        with pytest.raises(errors.NotFound, match="it was confirmed"):
            self.undo()


@pytest.fixture
def host(libvirtd, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(aside, "FOLDER", aside.FOLDER)
    monkeypatch.setattr(departed, "FOLDER", str(tmp_path / "moved"))
    monkeypatch.setattr(disk_notes, "FOLDER", disk_notes.FOLDER)
    monkeypatch.setattr(restore.Restore, "_argv", restore.Restore._argv)
    found = Over(libvirtd.uri, tmp_path)
    found.prepare()
    yield found
    found.clear()


@pytest.mark.parametrize("scenario", [Over, Undone, Confirmed])
def test_killed_at_each_line(libvirtd, tmp_path, scenario):  # noqa: F811
    killing.run(scenario, libvirtd, tmp_path)


def test_what_is_kept_aside_is_in_use(host):
    host.restore()
    with host.conn() as conn:
        path = host.old("vda")
        assert "web1 as it was before 000001-x" in usage.read(conn).why(usage.keys_of(conn, path))
        Path(aside.FOLDER, f"{next(aside.every()).uuid}.json").write_text("{")
        assert "cannot be read" in usage.read(conn).why(["/somewhere"])
        with pytest.raises(errors.OperationFailed, match="cannot be read"):
            over.undo(conn, host.config, "web1", False)


def test_one_disk_alone(host):
    host.restore(only="vdb")
    vda, vdb = sorted(one.get("file") for one in host.disks())[::-1]
    assert vda == host.old("vda") and holds(vda, 1) and holds(vdb, 2)
    assert host.confirm() == [host.old("vdb")]
    assert holds(vda, 1)


def test_a_disk_that_was_deleted_by_hand_is_not_brought_back(host):
    host.restore()
    os.unlink(host.old("vdb"))
    with pytest.raises(errors.Refused, match=r"vdb\.old is gone"):
        host.undo()
    assert not host.is_old()


def test_a_guest_that_runs_is_refused_before_anything_is_made(host):
    with host.conn() as conn:
        dom = conn.lookupByName("web1")
        dom.create()
        with pytest.raises(errors.Refused, match="is running: stop it first"):
            host.restore()
        assert os.listdir(host.images) == [] and dom.isActive()
        host.restore(stop=True)
        assert not dom.isActive()
        dom.create()
        with pytest.raises(errors.Refused, match="is running"):
            host.undo()
        dom.destroy()
    assert not host.is_old()


def test_what_fails_leaves_the_guest_as_it_runs(host):
    os.unlink(host.folder / "vdb.b")
    with host.conn() as conn:
        dom = conn.lookupByName("web1")
        dom.create()
        with pytest.raises(errors.VirtError, match="vdb"):
            host.restore(stop=True)
        assert dom.isActive()
        dom.destroy()
    assert host.is_old()
    host.nothing_is_left()


def test_the_definition_of_a_guest_that_was_purged_comes_back(host):
    host.restore()
    with host.conn() as conn:
        conn.lookupByName("web1").undefine()
    assert host.undo() == ()
    assert host.is_old()
    host.nothing_is_left()


def test_a_purge_names_what_is_kept_of_the_guest_and_who_deletes_it(host):
    host.restore(only="vdb")
    told = host.call("purge", "web1", test=True)
    # vda is in both
    assert sorted(told["delete"]) == sorted([host.old("vda"), f"{host.images}/web1_vdb.qcow2"])
    assert "virt.backup_confirm web1 host=HOST deletes it" in told["keep"].pop(host.old("vdb"))
    assert not told["keep"]
    host.call("purge", "web1")
    assert holds(host.old("vdb"), 1)
    with host.conn() as conn:
        assert conn.listAllDomains() == []
    host.confirm()
    assert not os.path.exists(host.old("vdb"))
    host.nothing_is_left()


def test_it_is_not_renamed_before_it_is_confirmed_or_undone(host):
    host.restore()
    with pytest.raises(errors.Refused, match="then rename it"):
        host.call("rename", "web1", "web9", seed=False)
    assert host.confirm() == [host.old(target) for target in TARGETS]
    host.call("rename", "web1", "web9", seed=False)
    with host.conn() as conn:
        assert [dom.name() for dom in conn.listAllDomains()] == ["web9"]


def test_one_that_was_moved_away_is_not_there_twice(host):
    host.restore()
    departed.note("web1", "hv2")
    with host.conn() as conn:
        conn.lookupByName("web1").undefine()
        with pytest.raises(errors.Refused, match="web1 was moved to another host"):
            host.undo()
        assert conn.listAllDomains() == []
    assert host.confirm() == [host.old(target) for target in TARGETS]


def test_what_the_next_increment_begins_from_comes_back_too(host):
    name = f"{chains.PREFIX}000001"
    told = Checkpoint(
        name=name, disks=[CheckpointDisk(name=t, checkpoint="bitmap") for t in TARGETS]
    )
    with host.conn() as conn:
        dom = conn.lookupByName("web1")
        dom.create()
        dom.checkpointCreateXML(told.tostring())
        dom.destroy()
        then = look.look(conn, "web1")
        assert [one.bitmaps for one in then.disks] == [{name: chains.GOOD}] * 2
        host.restore()
        assert [one.bitmaps for one in look.look(conn, "web1").disks] == [{}, {}]
        host.undo()
        assert look.look(conn, "web1") == then
        dom.checkpointLookupByName(name).delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)
