"""In-place restores that are killed at each line: the guest is the old or the restored one, its
disks are complete, and the same verb continues. In a private libvirtd; a file replaces the NBD
export of the target."""

import errno
import os
import re
import subprocess
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

import libvirt

from saltvirt import errors
from saltvirt.backup.export import in_place_restore, inspect_guest, replaced_guest, restore
from saltvirt.backup.export.replaced_guest import SavedState
from saltvirt.backup.model import backup_schedule, chains
from saltvirt.backup.model.answers import ShownBackup, ShownDisk
from saltvirt.design import identity
from saltvirt.design.domain import RECORD_VERSION
from saltvirt.host.migration import departures
from saltvirt.host.provision import admission, disk_journal, guest_builder
from saltvirt.host.storage import files, usage
from saltvirt.xml.domain.backup import Checkpoint, CheckpointDisk
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.metadata import GuestRecord, MetadataEntry, OwnDisk
from tests.functional import killing
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.storage.test_still_needed import opened
from tests.functional.operations.test_killed import DISK, GUEST, MIB, POOL, Host

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

    FILES = ("backup/export/in_place_restore.py", "backup/export/replaced_guest.py")

    def __init__(self, uri, folder):
        super().__init__(uri, folder)
        replaced_guest.FOLDER = str(folder / "aside")
        self.config = admission.AdmissionConfig.configured(self.modules["config.get"])
        restore.RestoreBuilder._argv = lambda one, target, path: [
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

    def shown(self, conn, targets=TARGETS, size=MIB):
        """The backup: of the guest as it is defined now."""
        definition = conn.lookupByName("web1").XMLDesc(0)
        disks = tuple(ShownDisk(target, size) for target in targets)
        return ShownBackup("000001-x", "web1", "hv2", 1, definition, disks, "")

    def restore(self, only=None, stop=False, say=guest_builder.no_report, **changed):
        with self.conn() as conn:
            shown = replace(self.shown(conn), **changed)
            tools = guest_builder.Tools(self.config, report_step=say)
            wanted = guest_builder.GuestRequest("web1")
            return (
                in_place_restore.InPlaceRestore(conn, wanted, tools, shown, "", stop, only)
                .run()
                .to_answer()
            )

    def one_disk(self, target, **changed):
        with self.conn() as conn:
            tools = guest_builder.Tools(self.config)
            shown, wanted = self.shown(conn, **changed), guest_builder.GuestRequest("web1")
            made = restore.RestoreBuilder(conn, wanted, tools, shown, "", True)
            return in_place_restore.one_disk(conn, tools, "web1", made, target)

    def undo(self):
        with self.conn() as conn:
            return in_place_restore.undo(conn, self.config, "web1", False).leftovers

    def confirm(self):
        with self.conn() as conn:
            return in_place_restore.confirm(conn, self.config, "web1").delete

    def act(self):
        return self.restore()

    def disks(self):
        with self.conn() as conn:
            tree = in_place_restore._tree(conn.lookupByName("web1"))
            return sorted(tree.iterfind("devices/disk/source"), key=lambda one: one.get("file"))

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
        assert [*replaced_guest.load_all()] == []
        assert disk_journal.read("web1") is None

    def after(self):
        assert all(holds(self.old(target), 1) for target in TARGETS)
        if self.is_old():
            self.restore()
        assert not self.is_old()
        with pytest.raises(errors.Refused, match="is still saved"):
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
        if not self.is_old() or [*replaced_guest.load_all()]:
            assert self.undo() == ()
        assert self.is_old()
        self.nothing_is_left()


class Confirmed(Undone):
    """The same of what it had."""

    def act(self):
        return self.confirm()

    def after(self):
        assert not self.is_old()
        if [*replaced_guest.load_all()]:
            self.confirm()
        assert not any(Path(self.old(target)).exists() for target in TARGETS)
        with pytest.raises(errors.NotFound, match="no in-place restore to confirm or undo"):
            self.undo()


@pytest.fixture
def host(libvirtd, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(replaced_guest, "FOLDER", replaced_guest.FOLDER)
    monkeypatch.setattr(departures, "FOLDER", str(tmp_path / "moved"))
    monkeypatch.setattr(disk_journal, "FOLDER", disk_journal.FOLDER)
    monkeypatch.setattr(restore.RestoreBuilder, "_argv", restore.RestoreBuilder._argv)
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
        assert "web1 before it was replaced by 000001-x" in usage.read(conn).keep_reason(
            usage.keys_of(conn, path)
        )
        Path(replaced_guest.FOLDER, f"{next(replaced_guest.load_all()).uuid}.json").write_text("{")
        assert "cannot be read" in usage.read(conn).keep_reason(["/somewhere"])
        with pytest.raises(errors.OperationFailed, match="cannot be read"):
            in_place_restore.undo(conn, host.config, "web1", False)


def test_one_disk_alone(host):
    host.restore(only="vdb")
    vda, vdb = sorted(one.get("file") for one in host.disks())[::-1]
    assert vda == host.old("vda") and holds(vda, 1) and holds(vdb, 2)
    assert host.confirm() == [host.old("vdb")]
    assert holds(vda, 1)


def test_a_disk_that_was_deleted_by_hand_is_not_brought_back(host):
    host.restore()
    os.unlink(host.old("vdb"))
    with pytest.raises(errors.Refused, match=r"vdb\.old is missing"):
        host.undo()
    assert not host.is_old()


def test_a_guest_that_runs_is_refused_before_anything_is_made(host):
    with host.conn() as conn:
        dom = conn.lookupByName("web1")
        dom.create()
        said = []
        with pytest.raises(errors.Refused, match="is running: stop it first"):
            host.restore(say=lambda step, *_words, **_more: said.append(step))
        assert said == [] and os.listdir(host.images) == [] and dom.isActive()
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


def as_it_was(host):
    """The guest, and nothing of what was begun."""
    assert host.is_old()
    host.nothing_is_left()


def test_another_guest_of_the_name_stays(host):
    with host.conn() as conn:
        text = conn.lookupByName("web1").XMLDesc(0)
    other = re.sub("<uuid>.", "<uuid>" + ("a" if "<uuid>b" in text else "b"), text)
    with pytest.raises(errors.Refused, match="is not the guest of the backup"):
        host.restore(definition=other)
    as_it_was(host)


def test_the_new_disks_are_on_the_disk_before_the_guest_has_them(host, monkeypatch):
    """After a power cut the definition, which libvirt puts there, would have disks that are not
    whole."""
    synced, sync, define = set(), os.fsync, in_place_restore.lookup.define

    def seen(path):
        found = os.stat(path)
        return found.st_ino, found.st_size

    def syncs(fd):
        sync(fd)
        synced.add(seen(fd))

    def defines(conn, text):
        new = [Path(one.source.file) for one in Domain.fromstring(text).disks]
        assert len(new) == len(TARGETS)
        assert {seen(one) for one in new} | {seen(host.images)} <= synced
        return define(conn, text)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(in_place_restore.lookup, "define", defines)
    host.restore()
    assert not host.is_old()


def test_a_new_disk_that_does_not_get_to_the_disk_is_none(host, monkeypatch):
    sync = os.fsync

    def fails(fd):
        if os.readlink(f"/proc/self/fd/{fd}").endswith("vdb.qcow2"):
            raise OSError(errno.EIO, "Input/output error")
        sync(fd)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(errors.OperationFailed, match=r"cannot write .*vdb\.qcow2: Input/output"):
        host.restore()
    host.nothing_is_left()
    assert host.is_old()


def test_no_file_of_another_guest_is_made_or_taken_away_by_what_a_disk_is_called(host):
    """By the machine of the target, which no hypervisor has to trust."""
    foreign, target = str(host.folder / "foreign.qcow2"), "vda/../../foreign"
    make(foreign, 3)
    with host.conn() as conn:
        definition = host.shown(conn).definition.replace("dev='vda'", f"dev='{target}'")
    with pytest.raises(errors.BadAnswer, match=r"hv2 exports a disk .vda/\.\./\.\./foreign"):
        host.restore(definition=definition, disks=(ShownDisk(target, MIB),))
    assert holds(foreign, 3)
    host.nothing_is_left()
    assert host.is_old()


def test_a_disk_that_one_of_the_two_lacks_is_named(host):
    with pytest.raises(errors.NotFound, match="backup 000001-x has no disk vdz"):
        host.restore(only="vdz")
    with pytest.raises(errors.NotFound, match="backup 000001-x has no disk vdz"):
        host.one_disk("vdz")
    with host.conn() as conn:
        text = conn.lookupByName("web1").XMLDesc(0)
        renamed = text.replace("dev='vdb'", "dev='vdc'")
        conn.defineXML(renamed)
        with pytest.raises(errors.NotFound, match="web1 has no disk vdb on this host"):
            host.restore(only="vdb", definition=text)
        conn.defineXML(text)
    as_it_was(host)


def test_without_room_nothing_is_made(host):
    huge = tuple(ShownDisk(target, 1 << 60) for target in TARGETS)
    with pytest.raises(errors.NoRoom, match="disk"):
        host.restore(disks=huge)
    with pytest.raises(errors.NoRoom, match="disk"):
        host.one_disk("vda", size=1 << 60)
    as_it_was(host)


def test_a_disk_that_somebody_has_open_stays_as_it_is(host):
    stays = pytest.raises(errors.OperationFailed, match="was not changed: /")
    with opened(host.old("vda"), "qcow2"), stays:
        host.restore()
    as_it_was(host)


@pytest.mark.parametrize("what", ["changed", "started"])
def test_one_that_is_changed_or_started_meanwhile_stays(host, what):
    def say(step, *_words, **_more):
        if step == "disk":
            with host.conn() as conn:
                dom = conn.lookupByName("web1")
                if what == "started" and not dom.isActive():
                    dom.create()
                elif what == "changed":
                    text = dom.XMLDesc(0).replace("</name>", "</name><title>new</title>")
                    conn.defineXML(text)

    words = {"changed": "was changed meanwhile", "started": "is running: stop it first"}[what]
    with pytest.raises(errors.VirtError, match=words):
        host.restore(say=say)
    with host.conn() as conn:
        dom = conn.lookupByName("web1")
        assert bool(dom.isActive()) is (what == "started")
        assert ("<title>new<" in dom.XMLDesc(0)) is (what == "changed")
        if dom.isActive():
            dom.destroy()
    as_it_was(host)


def test_when_libvirt_does_not_take_the_new_disks_it_is_as_it_was(host, monkeypatch):
    define = in_place_restore.lookup.define
    monkeypatch.setattr(
        in_place_restore.lookup, "define",
        lambda conn, text: define(conn, re.sub("<disk.*?/disk>", "", text, count=1, flags=re.S)),
    )  # fmt: skip
    with pytest.raises(errors.OperationFailed, match="did not accept the new disks of web1"):
        host.restore()
    as_it_was(host)


def test_a_disk_that_is_not_restored_stays_where_it_is(host):
    with host.conn() as conn:
        host.restore(disks=host.shown(conn, ("vda",)).disks)
    paths = {one.get("file") for one in host.disks()}
    assert host.old("vdb") in paths and host.old("vda") not in paths and len(paths) == 2
    assert host.confirm() == [host.old("vda")]
    assert holds(host.old("vdb"), 1)


def on_volume(host):
    """vda of the guest is a pool's volume."""
    with host.conn() as conn:
        conn.storagePoolDefineXML(POOL.format(host.folder)).create()
        conn.lookupByName("web1").undefine()
        disks = VOLUME.format("vda.old")
        disks += DISK.format(format="qcow2", path=host.old("vdb"), target="vdb")
        conn.defineXML(GUEST.format(name="web1", disks=disks))


@pytest.mark.parametrize("only", ["vdb", None])
@pytest.mark.parametrize("by_older", [False, True])
def test_a_volume_that_stays_in_the_guest_is_not_deleted(host, only, by_older):
    on_volume(host)
    with host.conn() as conn:
        disks = host.shown(conn, ("vdb",)).disks
    host.restore(only=only, disks=disks)
    if by_older:
        replaced_guest.store(replace(next(replaced_guest.load_all()), retained=()))
    assert host.confirm() == [host.old("vdb")]
    assert holds(host.old("vda"), 1)


def test_nothing_is_deleted_while_the_pool_of_a_disk_is_not_started(host):
    on_volume(host)
    host.restore()
    with host.conn() as conn:
        conn.storagePoolLookupByName("p").destroy()
    with pytest.raises(errors.OperationFailed, match="pool p is not started"):
        host.confirm()
    assert all(holds(host.old(target), 1) for target in TARGETS)
    with host.conn() as conn:
        conn.storagePoolLookupByName("p").create()
    assert host.confirm() == [host.old(target) for target in TARGETS]


def without(host, target):
    """The guest's definition without a disk, and its target's path."""
    with host.conn() as conn:
        model = Domain.fromstring(conn.lookupByName("web1").XMLDesc(0))
        [disk] = [one for one in model.disks if one.target == target]
        model.disks.remove(disk)
        conn.defineXML(model.tostring())


@pytest.mark.parametrize("only", ["vdb", None])
def test_a_disk_that_is_detached_since_stays_as_the_restore_did_not_replace_it(host, only):
    with host.conn() as conn:
        disks = host.shown(conn, ("vdb",)).disks
    host.restore(only=only, disks=disks)
    without(host, "vda")
    assert host.confirm() == [host.old("vdb")]
    assert holds(host.old("vda"), 1)


def record_disks(host):
    """Put the guest's two disks into its record, as its init does."""
    with host.conn() as conn:
        model = Domain.fromstring(conn.lookupByName("web1").XMLDesc(0))
        model.record = GuestRecord(version=RECORD_VERSION)
        for target in TARGETS:
            model.record.disks.append(OwnDisk(target=target, path=host.old(target)))
        conn.defineXML(model.tostring())


def test_a_disk_that_was_detached_before_is_not_deleted_and_not_needed(host):
    """Its record has it still, as after virsh detach-disk."""
    record_disks(host)
    without(host, "vda")
    with host.conn() as conn:
        disks = host.shown(conn, ("vdb",)).disks
    host.restore(only="vdb", disks=disks)
    assert host.confirm() == [host.old("vdb")]
    assert holds(host.old("vda"), 1)
    host.restore(only="vdb", disks=disks)
    os.unlink(host.old("vda"))
    assert host.undo() == ()


def test_what_stands_on_the_new_disks_is_the_new_guest(host):
    """A second restore would forget how the guest was before the first."""
    host.restore()
    with host.conn() as conn:
        text = conn.lookupByName("web1").XMLDesc(0)
        for target in TARGETS:
            new = f"{host.images}/web1_{target}.qcow2"
            argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", new, "-F", "qcow2"]
            subprocess.run([*argv, f"{new}.above"], check=True)
            text = text.replace(new, f"{new}.above")
        conn.defineXML(text)
    with pytest.raises(errors.Refused, match="is still saved"):
        host.restore()
    assert host.confirm() == [host.old(target) for target in TARGETS]


def test_of_a_guest_with_disks_of_neither_nothing_is_forgotten(host):
    host.restore()
    without(host, "vda")
    without(host, "vdb")
    with pytest.raises(errors.Refused, match="has neither the disks"):
        host.restore()
    assert [one.backup for one in replaced_guest.load_all()] == ["000001-x"]


def test_of_one_disk_the_guests_record_of_the_others_stays(host):
    """By it a later purge knows which files are the guest's own."""
    record_disks(host)
    host.restore(only="vdb")
    with host.conn() as conn:
        record = Domain.fromstring(conn.lookupByName("web1").XMLDesc(0)).record
    new = f"{host.images}/web1_vdb.qcow2"
    assert {own.target: own.path for own in record.disks} == {"vda": host.old("vda"), "vdb": new}
    assert len(record.disks) == 2
    assert host.confirm() == [host.old("vdb")]
    assert {*host.call("purge", "web1", test=True)["delete"]} == {host.old("vda"), new}


def test_what_the_guest_says_today_stays_and_so_does_what_is_its_own(host):
    """A schedule of backups, such as that of an earlier day had none, goes by it."""
    record_disks(host)
    with host.conn() as conn:
        shown = host.shown(conn, ("vdb",))
        model = Domain.fromstring(conn.lookupByName("web1").XMLDesc(0))
        model.record.entries.append(
            MetadataEntry(key=backup_schedule.KEY, value="hours=24.0 to=vault")
        )
        conn.defineXML(model.tostring())
    host.restore(definition=shown.definition, disks=shown.disks)
    with host.conn() as conn:
        record = Domain.fromstring(conn.lookupByName("web1").XMLDesc(0)).record
    assert [(one.key, one.value) for one in record.entries] == [
        (backup_schedule.KEY, "hours=24.0 to=vault")
    ]
    new = f"{host.images}/web1_vdb.qcow2"
    assert {own.target: own.path for own in record.disks} == {"vda": host.old("vda"), "vdb": new}
    assert host.confirm() == [host.old("vdb")]
    assert {*host.call("purge", "web1", test=True)["delete"]} == {host.old("vda"), new}


@pytest.mark.parametrize("how", ["layer", "volume"])
def test_what_is_put_aside_is_no_disk_of_the_new_guests_own(host, how):
    """Also if the record names what the disk stands on, or names it as a volume."""
    record_disks(host)
    top = str(host.folder / "vda.top")
    if how == "layer":
        base = ["-b", host.old("vda"), "-F", "qcow2"]
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *base, top], check=True)
    with host.conn() as conn:
        conn.storagePoolDefineXML(POOL.format(host.folder)).create()
        model = Domain.fromstring(conn.lookupByName("web1").XMLDesc(0))
        if how == "layer":
            model.disks[0].source.file = top
        else:
            own = model.record.disks[0]
            own.path, own.pool, own.volume = None, "p", "vda.old"
        conn.defineXML(model.tostring())
    host.restore()
    with host.conn() as conn:
        record = Domain.fromstring(conn.lookupByName("web1").XMLDesc(0)).record
    new = {target: f"{host.images}/web1_{target}.qcow2" for target in TARGETS}
    assert [(own.target, own.path) for own in record.disks] == [*new.items()]
    gone = [host.old(target) for target in TARGETS] + [top] * (how == "layer")
    assert sorted(host.confirm()) == sorted(gone)
    assert {*host.call("purge", "web1", test=True)["delete"]} == {*new.values()}


@pytest.mark.parametrize("only", [None, "vdb"])
def test_a_restored_guest_has_the_names_of_its_disks_and_keeps_its_root_disk(host, only):
    """Its files are called by their targets: an update took them for disks to be made."""
    with host.conn() as conn:
        model = Domain.fromstring(conn.lookupByName("web1").XMLDesc(0))
        model.record = GuestRecord(version=RECORD_VERSION)
        for disk, name in zip(model.disks, ("system", "data"), strict=False):
            identity.name_disk(model.record, name, disk)
        conn.defineXML(model.tostring())
    host.restore(only=only)
    with host.conn() as conn:
        there = Domain.fromstring(conn.lookupByName("web1").XMLDesc(0))
    assert identity.disk_names(there) == {"vda": "system", "vdb": "data"}
    path = f"{host.images}/web1_vdb.qcow2"
    assert identity.entry(there.record, "data").path == path


def test_a_disk_is_made_beside_the_guests_own_as_a_file(host):
    made = host.one_disk("vdb")
    assert (made.path, made.size_bytes) == (f"{host.images}/web1_vdb.qcow2", MIB)
    assert holds(made.path, 2) and host.is_old()
    assert host.one_disk("vdb").path == f"{host.images}/web1_vdb.2.qcow2"
    assert disk_journal.read("web1") is None and [*replaced_guest.load_all()] == []
    (host.folder / "vda.b").unlink()
    with pytest.raises(errors.VirtError, match="vda"):
        host.one_disk("vda")
    assert len(os.listdir(host.images)) == 2 and disk_journal.read("web1") is None


def test_what_a_restore_would_find_is_said(host):
    with host.conn() as conn:
        before = in_place_restore.inspect(conn, "web1", False)
        dom = conn.lookupByName("web1")
        assert (before.uuid, before.active, before.reasons) == (dom.UUIDString(), False, ())
        assert before.unconfirmed is None
        host.restore()
        assert in_place_restore.inspect(conn, "web1", False).unconfirmed == "000001-x"
        host.undo()
        dom.create()
        [why] = in_place_restore.inspect(conn, "web1", False).reasons
        assert "is running" in why and in_place_restore.inspect(conn, "web1", True).reasons == ()
        assert in_place_restore.inspect(conn, "web1", True).active
        dom.destroy()


def test_to_ask_whether_it_can_be_brought_back_changes_nothing(host):
    host.restore()
    with host.conn() as conn:
        assert in_place_restore.undo(conn, host.config, "web1", False, test=True).leftovers == ()
    assert not host.is_old() and [*replaced_guest.load_all()]


def test_a_new_disk_that_somebody_has_open_is_named_and_goes_when_it_is_asked_again(host):
    host.restore()
    new = f"{host.images}/web1_vda.qcow2"
    with opened(new, "qcow2"):
        [why] = host.undo()
        assert why.startswith(f"{new} stays: ")
    assert host.is_old() and [*replaced_guest.load_all()], "who asks again must find what is left"
    assert host.undo() == ()
    as_it_was(host)


def test_a_guest_that_was_backed_up_meanwhile_is_undone_to_the_end(host):
    """The checkpoint of that backup names the new disks."""
    host.restore()
    told = Checkpoint(
        name=f"{chains.PREFIX}000002",
        disks=[CheckpointDisk(name=t, checkpoint="bitmap") for t in TARGETS],
    )
    with host.conn() as conn:
        dom = conn.lookupByName("web1")
        dom.create()
        checkpoint = dom.checkpointCreateXML(told.tostring())
        dom.destroy()
        left = host.undo()
        checkpoint.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)
    assert left == ()
    as_it_was(host)


def test_a_disk_that_only_the_running_guest_has_is_named(host):
    """Powered off for the restore, the guest has it no more."""
    with host.conn() as conn:
        shown = host.shown(conn, ("vda",))
        model = Domain.fromstring(shown.definition)
        model.disks.remove(model.disks[1])
        dom = conn.lookupByName("web1")
        dom.create()
        conn.defineXML(model.tostring())
    made = host.restore(stop=True, disks=shown.disks, definition=model.tostring())
    [said] = made["warnings"]
    assert said.startswith(f"disk vdb, {host.old('vdb')}, was attached to the running web1 only")
    assert holds(host.old("vdb"), 1)


def test_a_disk_that_comes_back_in_plain_is_named(host):
    secret = "<encryption format='luks'><secret type='passphrase' uuid='{}'/></encryption>"
    with host.conn() as conn:
        text = host.shown(conn).definition
    text = text.replace("<target dev='vdb'", f"{secret.format(str(uuid.uuid4()))}<target dev='vdb'")
    [said] = host.restore(definition=text)["warnings"]
    assert said.startswith("disk vdb was encrypted by libvirt, the restored disk is not")
    with host.conn() as conn:
        assert "<encryption" not in conn.lookupByName("web1").XMLDesc(0)


def test_variables_of_another_format_than_libvirts_here_are_not_put_there(host, monkeypatch):
    """QEMU opens the file by the format that libvirt has for it, and would not start."""
    put = []
    monkeypatch.setattr(
        in_place_restore.guest_state, "_variables_path", lambda *_: "/web1_VARS.qcow2"
    )
    monkeypatch.setattr(
        in_place_restore.guest_state,
        "expected_kinds",
        lambda _: [in_place_restore.guest_state.FIRMWARE],
    )
    monkeypatch.setattr(
        in_place_restore.guest_state, "install", lambda _dom, state, _kept: put.append({*state})
    )
    monkeypatch.setattr(
        in_place_restore.InPlaceRestore, "read_state", lambda _: {"variables.fd": b""}
    )
    [said] = host.restore()["warnings"]
    assert (
        "their format in the backup is fd, but libvirt on this host uses /web1_VARS.qcow2" in said
    )
    assert put == []
    assert host.confirm() == [host.old(target) for target in TARGETS]


def test_what_an_undo_has_left_goes_while_the_guest_runs_as_it_was(host):
    host.restore()
    new = f"{host.images}/web1_vda.qcow2"
    with opened(new, "qcow2"):
        assert len(host.undo()) == 1
    make(f"{host.images}/web1_vdb.qcow2", 3)  # another file by now
    with host.conn() as conn:
        dom = conn.lookupByName("web1")
        dom.create()
        assert host.undo() == ()
        assert dom.isActive()
        dom.destroy()
    assert os.listdir(host.images) == ["web1_vdb.qcow2"]
    assert host.is_old() and [*replaced_guest.load_all()] == []


def test_a_restore_that_was_killed_before_its_state_was_in_place_is_not_confirmed(
    host, monkeypatch
):
    """That would delete what the TPM had, and what the backup has of it is not there."""
    place = host.folder / "tpm"
    place.write_text("what was sealed")
    kept = SavedState(str(place), f"{place}.before-restore", True)

    def dies(*_):
        os.rename(place, kept.saved_path)
        os._exit(9)

    def puts(*_):
        os.rename(place, kept.saved_path)
        place.write_text("what the backup has")

    monkeypatch.setattr(in_place_restore.guest_state, "save_locations", lambda *_: (kept,))
    monkeypatch.setattr(
        in_place_restore.InPlaceRestore, "read_state", lambda _: {"tpm/tpm2/tpm2-00.permall": b""}
    )
    monkeypatch.setattr(in_place_restore.guest_state, "install", dies)
    assert killing.apart(host.restore)[0] == 9
    assert not host.is_old()
    with pytest.raises(errors.Refused, match=r"virt\.backup_undo web1, then restore it again"):
        host.confirm()
    assert host.undo() == ()
    assert place.read_text() == "what was sealed"
    as_it_was(host)
    monkeypatch.setattr(in_place_restore.guest_state, "install", puts)
    host.restore()
    assert host.confirm() == [host.old(target) for target in TARGETS]
    assert place.read_text() == "what the backup has" and not os.path.exists(kept.saved_path)


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


def test_a_disk_that_was_attached_since_is_named_by_an_undo(host):
    host.restore()
    added = str(host.folder / "added")
    make(added, 3)
    with host.conn() as conn:
        dom = conn.lookupByName("web1")
        dom.attachDeviceFlags(
            DISK.format(format="qcow2", path=added, target="vdc"), libvirt.VIR_DOMAIN_AFFECT_CONFIG
        )
        done = in_place_restore.undo(conn, host.config, "web1", False)
    assert (done.leftovers, done.detached) == ((), (added,))
    assert host.is_old() and holds(added, 3)


def test_a_guest_is_told_by_its_generation_id_that_it_was_set_back(host):
    with host.conn() as conn:
        text = conn.lookupByName("web1").XMLDesc(0).replace("<memory", "<genid/><memory", 1)
        conn.defineXML(text)
        ids = [Domain.fromstring(conn.lookupByName("web1").XMLDesc(0)).generation_id]
        for only in ("vdb", None):
            host.restore(only=only)
            ids.append(Domain.fromstring(conn.lookupByName("web1").XMLDesc(0)).generation_id)
            host.undo()
    assert all(ids) and len({*ids}) == 3


def test_it_is_not_renamed_before_it_is_confirmed_or_undone(host):
    host.restore()
    with pytest.raises(errors.Refused, match="then rename web1"):
        host.call("rename", "web1", "web9", seed=False)
    assert host.confirm() == [host.old(target) for target in TARGETS]
    host.call("rename", "web1", "web9", seed=False)
    with host.conn() as conn:
        assert [dom.name() for dom in conn.listAllDomains()] == ["web9"]


def test_one_that_was_moved_away_is_not_there_twice(host):
    host.restore()
    departures.record_departure("web1", "hv2")
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
        then = inspect_guest.inspect(conn, "web1")
        assert [one.bitmaps for one in then.disks] == [{name: chains.GOOD}] * 2
        host.restore()
        assert [one.bitmaps for one in inspect_guest.inspect(conn, "web1").disks] == [{}, {}]
        host.undo()
        assert inspect_guest.inspect(conn, "web1") == then
        dom.checkpointLookupByName(name).delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)


VOLUME = """<disk type='volume' device='disk'><driver name='qemu' type='qcow2'/>
<source pool='p' volume='{}'/><target dev='vda' bus='virtio'/></disk>"""


def test_the_volume_of_a_guest_that_is_off_has_its_size(host):
    """libvirt looks into pools for a guest that runs alone."""
    path = host.old("vda")
    with host.conn() as conn:
        pool = conn.storagePoolDefineXML(POOL.format(host.folder))
        pool.create()
        conn.lookupByName("web1").undefine()
        disk = VOLUME.format(os.path.basename(path))
        conn.defineXML(GUEST.format(name="web1", disks=disk))
        try:
            [looked] = inspect_guest.inspect(conn, "web1").disks
            assert (looked.source, looked.size_bytes) == ("p/vda.old", MIB)
        finally:
            conn.lookupByName("web1").undefine()
            pool.destroy()
            pool.undefine()


@pytest.mark.parametrize("runs", [False, True])
def test_the_pool_of_a_disk_that_is_not_started_is_named(host, runs):
    on_volume(host)
    with host.conn() as conn:
        dom = conn.lookupByName("web1")
        if runs:
            dom.create()
        conn.storagePoolLookupByName("p").destroy()
        with pytest.raises(errors.OperationFailed, match="storage pool p is not started: start it"):
            inspect_guest.inspect(conn, "web1")
        if runs:
            dom.destroy()


def test_a_volume_on_a_server_of_a_guest_that_is_off_is_skipped(host, monkeypatch):
    """No path of this host leads to it; what its other disks have is backed up."""
    on_volume(host)
    monkeypatch.setattr(files, "volume_path", lambda *_: "rbd/web1")
    with host.conn() as conn:
        found = inspect_guest.inspect(conn, "web1")
    assert [one.target for one in found.disks] == ["vdb"]
    assert "its volume is on a server, rbd/web1" in found.skipped["vda"]
