"""A running guest: where its QEMU exports its disks, and what the backup changes for that."""

import sys
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.backup.export import definition, running
from saltvirt.backup.export.request import BackupSession
from saltvirt.backup.model import chains, record
from saltvirt.backup.model.answers import GuestInspection, InspectedDisk, PlannedDisk
from saltvirt.xml.domain.backup import Checkpoint, DomainBackup


def qemu_of(name, number=14):
    """A guest that runs as that number."""
    return SimpleNamespace(ID=lambda: number, name=lambda: name)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """makes(names) folders of QEMUs."""
    monkeypatch.setattr(running, "_QEMU_FOLDERS", str(tmp_path))

    def makes(*names):
        for name in names:
            (tmp_path / name).mkdir()
        return tmp_path

    return makes


@pytest.mark.parametrize(("name", "its"), [
    ("web1", "domain-14-web1"), ("web", "domain-14-web"), ("[a]*", "domain-14-[a]*"),
    ("a-guest-with-a-long-name", "domain-14-a-guest-with-a-long-"),
])  # fmt: skip
def test_what_a_power_cut_left_of_another_guest_of_the_same_number_is_not_its_folder(
    folders, name, its
):
    there = folders(its, "domain-14-other", "domain-14-we", "domain-14-web12", "domain-1-web1")
    assert running.exports_path(qemu_of(name)) == str(there / its / "salt-virt.nbd")


@pytest.mark.parametrize("there", [[], ["domain-14-other"], ["domain-1-web1"], ["domain-140-web1"]])
def test_without_its_folder_nothing_is_shown(folders, there):
    folders(*there)
    with pytest.raises(errors.OperationFailed, match="web1 has no folder below"):
        running.exports_path(qemu_of("web1"))


# -- what becomes of the guest meanwhile ---------------------------------------------------------

WEB1 = """<domain type='test'><name>web1</name><memory>1024</memory><os><type>hvm</type></os>
<devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/x'/>
<target dev='vda'/></disk></devices></domain>"""
AGENT = "<domain><devices><channel><target name='{}' state='{}'/></channel></devices></domain>"
DISKS = InspectedDisk("vda", 1, "file /x", "qcow2"), InspectedDisk("vdb", 1, "file /y", "raw")
LOOK = GuestInspection("u", True, DISKS, (), {"hda": "a drive"})
IDENT, BEFORE = "000002-20261126T160000Z-0123abcd", "000001-20261126T160000Z-0123abcd"
SINCE = PlannedDisk("vda", parent=BEFORE, since=chains.checkpoint(BEFORE))
WHOLE = PlannedDisk("vdb", reason="it is raw")


def says(code, text="it is broken"):
    exc = libvirt.libvirtError(text)
    exc.err = (code, 0, text, 2, "", None, None, 0, 0)
    return exc


class Qemu:
    """What libvirt's test driver does not do of a guest that runs: as that would have it. begins:
    what each call of backupBegin raises, or None. shows: the same of backupGetXMLDesc."""

    def __init__(self, monkeypatch):
        self.did, self.begins, self.shows, self.frozen, self.thaws = [], [], [], 2, []
        monkeypatch.setattr(running, "_THAWS_AGAIN_S", 0.01)
        for name in ("agentSetResponseTimeout", "fsFreeze", "fsThaw", "backupBegin", "abortJob",
                     "backupGetXMLDesc"):  # fmt: skip
            mine = getattr(self, name)
            monkeypatch.setattr(libvirt.virDomain, name, lambda _dom, *args, do=mine: do(*args))
        monkeypatch.setattr(running, "_has_agent", lambda _dom: True)

    def _next(self, several):
        found = several.pop(0) if several else None
        if isinstance(found, Exception):
            raise found
        return found

    def agentSetResponseTimeout(self, seconds, _flags):
        assert seconds == 10

    def fsFreeze(self):
        self.did.append("freeze")
        return self._next([self.frozen])

    def fsThaw(self):
        self.did.append("thaw")
        found = self._next(self.thaws)
        return 2 if found is None else found

    def backupBegin(self, backup, checkpoint, _flags):
        self.did.append("begin")
        self.told = (
            DomainBackup.fromstring(backup),
            checkpoint and Checkpoint.fromstring(checkpoint),
        )
        return self._next(self.begins)

    def backupGetXMLDesc(self, _flags):
        return self._next(self.shows)

    def abortJob(self):
        self.did.append("abort")


@pytest.fixture
def dom(conn, folders):
    found = conn.defineXML(WEB1)
    found.create()
    folders(f"domain-{found.ID()}-web1")
    return found


@pytest.fixture
def qemu(monkeypatch):
    return Qemu(monkeypatch)


def begun(dom, qemu, *plan):
    disks = plan or (SINCE, WHOLE)
    request = SimpleNamespace(
        guest="web1", backup_id=IDENT, scratch="/srv/_backup", disks=disks, host="hv1"
    )
    return running.begin(
        dom, LOOK, request, lambda frozen: qemu.did.append("noted" if frozen else "over")
    )


LATE = says(libvirt.VIR_ERR_AGENT_UNRESPONSIVE)


def test_its_file_systems_are_frozen_for_the_moment_alone(dom, qemu):
    """And that they may be is written down before, so that whoever comes after a crash thaws."""
    served, consistency, note, when = begun(dom, qemu)
    assert record.moment(when)
    assert qemu.did == ["noted", "freeze", "begin", "thaw", "over"]
    assert (consistency, note) == (record.FROZEN, None)
    backup, checkpoint = qemu.told
    assert [(one.name, one.backup, one.mode, one.incremental) for one in backup.disks] == [
        ("vda", True, "incremental", SINCE.since), ("vdb", True, "full", None),
        ("hda", False, None, None),
    ]  # fmt: skip
    assert {one.name: one.checkpoint for one in checkpoint.disks} == {
        "vda": "bitmap", "vdb": "no", "hda": "no",
    }  # fmt: skip
    assert [one.checkpoint for one in served] == [chains.checkpoint(IDENT), None]
    assert [one.contexts for one in served] == [("qemu:dirty-bitmap:changed",), ()]


def test_the_moment_of_the_disks_is_when_the_backup_has_begun(dom, qemu, monkeypatch):
    """Not when all of it has been read, hours later; and before the guest writes on."""

    def written_at(_seconds):
        qemu.did.append("moment")
        return "2026-11-26T16:00:01Z"

    monkeypatch.setattr(running.record, "format_time", written_at)
    assert begun(dom, qemu)[3] == "2026-11-26T16:00:01Z"
    assert qemu.did == ["noted", "freeze", "begin", "moment", "thaw", "over"]


def test_one_that_thawed_by_itself_before_it_was_told_to_is_as_after_a_crash(dom, qemu):
    """Windows lets go after ten seconds, whatever libvirt still does."""
    qemu.thaws = [0]
    said = begun(dom, qemu)[1:3]
    assert said == (
        record.CRASH,
        "the guest thawed its file systems before the backup had begun",
    )
    assert qemu.did[-1] == "over"


def test_of_disks_that_keep_no_bitmap_there_is_no_checkpoint(dom, qemu, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "LOOK", GuestInspection("u", True, DISKS[1:]))
    [served], *_ = begun(dom, qemu, WHOLE)
    assert qemu.told[1] is None and served.checkpoint is None


def test_a_disk_of_an_old_version_is_read_whole_and_keeps_no_other_from_recording(
    dom, qemu, monkeypatch
):
    old = InspectedDisk("vdb", 1, "file /y", "qcow2", old=True)
    monkeypatch.setattr(sys.modules[__name__], "LOOK", GuestInspection("u", True, (DISKS[0], old)))
    first, second = begun(dom, qemu, PlannedDisk("vda"), PlannedDisk("vdb"))[0]
    recorded = {one.name: one.checkpoint for one in qemu.told[1].disks}
    assert recorded == {"vda": "bitmap", "vdb": "no"}
    assert first.checkpoint and not second.checkpoint
    assert "qemu-img amend -o compat=1.1" in second.reason


@pytest.mark.parametrize(("frozen", "note"), [
    (0, "the guest agent has no file system to freeze"),
    (says(86), "the guest agent did not freeze: it is broken"),
])  # fmt: skip
def test_where_nothing_could_be_frozen_it_is_as_after_a_crash(dom, qemu, frozen, note):
    qemu.frozen = frozen
    assert begun(dom, qemu)[1:3] == (record.CRASH, note)
    assert qemu.did[-1] == "over"
    assert ("thaw" in qemu.did) is (frozen != 0), "some may be frozen"


def test_one_that_does_not_hear_at_once_is_told_again_to_thaw(dom, qemu):
    """While it is at work on the freeze it hears nothing, and the guest would stand still."""
    qemu.thaws = [LATE, says(libvirt.VIR_ERR_INTERNAL_ERROR)]
    assert begun(dom, qemu)[1:3] == (record.FROZEN, None)
    assert qemu.did == ["noted", "freeze", "begin", "thaw", "thaw", "thaw", "over"]
    qemu.did, qemu.frozen, qemu.thaws = [], LATE, [LATE]
    assert begun(dom, qemu)[1] == record.CRASH
    assert qemu.did == ["noted", "freeze", "thaw", "thaw", "begin", "over"]


@pytest.mark.parametrize("frozen", [2, LATE], ids=["frozen", "late"])
def test_what_may_still_be_frozen_is_named_and_thawed_once_more_at_the_end(
    dom, qemu, monkeypatch, frozen
):
    monkeypatch.setattr(running, "_THAWS_S", 0.05)
    qemu.frozen, qemu.thaws = frozen, [LATE] * 1000
    said = begun(dom, qemu)[2]
    assert said.endswith("its file systems may still be frozen: virsh domfsthaw web1")
    assert "over" not in qemu.did and qemu.did.count("noted") == 2


def test_of_an_agent_that_cannot_freeze_nothing_is(dom, qemu):
    qemu.frozen = says(libvirt.VIR_ERR_INTERNAL_ERROR)
    qemu.thaws = [says(libvirt.VIR_ERR_INTERNAL_ERROR)] * 2
    assert begun(dom, qemu)[2] == "the guest agent did not freeze: it is broken"
    assert qemu.did == ["noted", "freeze", "thaw", "begin", "over"]


def test_one_that_was_stopped_is_frozen_no_more(dom, qemu):
    qemu.thaws = [LATE] * 1000
    dom.destroy()
    assert running.thaw(dom, 60) == 0 and qemu.did == ["thaw"]


def test_without_an_agent_nobody_is_asked(dom, qemu, monkeypatch):
    monkeypatch.setattr(running, "_has_agent", lambda _dom: False)
    assert begun(dom, qemu)[1:3] == (record.CRASH, "no guest agent answers")
    assert qemu.did == ["noted", "begin", "over"]


@pytest.mark.parametrize(("name", "state", "has"), [
    ("org.qemu.guest_agent.0", "connected", True),
    ("org.qemu.guest_agent.0", "disconnected", False),
    ("com.redhat.spice.0", "connected", False),
])  # fmt: skip
def test_an_agent_that_is_connected(name, state, has):
    dom = SimpleNamespace(XMLDesc=lambda _flags: AGENT.format(name, state))
    assert running._has_agent(dom) is has


def test_a_bitmap_that_is_lost_makes_it_a_whole_one(dom, qemu):
    qemu.begins = [says(libvirt.VIR_ERR_CHECKPOINT_INCONSISTENT, "the bitmap is gone")]
    served, *_ = begun(dom, qemu)
    assert [(one.parent, one.contexts, one.reason) for one in served] == [
        (None, (), "libvirt: the bitmap is gone"), (None, (), "it is raw"),
    ]  # fmt: skip
    assert {one.mode for one in qemu.told[0].disks} == {"full", None}
    assert qemu.did == ["noted", "freeze", "begin", "begin", "thaw", "over"]


@pytest.mark.parametrize(("begins", "plan", "words"), [
    ([libvirt.VIR_ERR_INTERNAL_ERROR], (), "a"),
    ([libvirt.VIR_ERR_CHECKPOINT_INCONSISTENT, libvirt.VIR_ERR_INTERNAL_ERROR], (), "b"),
    ([libvirt.VIR_ERR_CHECKPOINT_INCONSISTENT], (PlannedDisk("vda"), WHOLE), "a"),
])  # fmt: skip
def test_what_libvirt_does_not_begin_leaves_nothing_frozen(dom, qemu, begins, plan, words):
    qemu.begins = [says(code, text) for code, text in zip(begins, "ab", strict=False)]
    with pytest.raises(errors.VirtError, match=f"^cannot begin a backup of web1: {words}$"):
        begun(dom, qemu, *plan)
    assert qemu.did[-2:] == ["thaw", "over"]


OURS, NONE = "/srv/_backup/web1", says(libvirt.VIR_ERR_NO_DOMAIN_BACKUP)


def shown(folder):
    disk = f"<disk name='vda'><scratch file='{folder}/vda.qcow2'/></disk>"
    return f"<domainbackup mode='pull'><disks>{disk}</disks></domainbackup>"


def journal(folder=OURS):
    return BackupSession("web1", "u", IDENT, folder, active=True)


def test_whose_backup_it_is_that_is_served(dom, qemu):
    qemu.shows = [shown(OURS), shown(f"{OURS}2"), NONE, says(1)]
    assert [running.is_served(dom, journal()) for _ in range(3)] == [True, False, False]
    with pytest.raises(libvirt.libvirtError, match="it is broken"):
        running.is_served(dom, journal())
    dom.destroy()
    qemu.shows = [says(1)]
    assert running.is_served(dom, journal()) is False


def test_it_is_ended_once_and_looked_at_until_it_is(dom, qemu):
    qemu.shows = [shown(OURS), shown(OURS), NONE]
    running.end(dom, journal())
    assert qemu.did == ["abort"]
    qemu.shows = [shown("/somebody/else")]
    running.end(dom, journal())
    assert qemu.did == ["abort"], "the backup of somebody else goes on"


def test_what_libvirt_does_not_end_is_named(dom, qemu, monkeypatch):
    monkeypatch.setattr(running, "_ENDS_S", -1)
    qemu.shows = [shown(OURS)] * 2
    with pytest.raises(errors.OperationFailed, match="libvirt does not end the backup of web1"):
        running.end(dom, journal())


def test_what_was_left_in_its_folder_is_gone(tmp_path):
    path = tmp_path / "_backup" / "web1"
    for _ in range(2):
        running.make_scratch(str(path))
        assert list(path.iterdir()) == [] and path.stat().st_mode & 0o777 == 0o711
        (path / "vda.qcow2").write_text("old")


def test_a_disk_that_the_running_guest_lacks_is_named():
    xml = (
        "<domain><devices><disk type='file' device='disk'>"
        "<source file='/y'/><target dev='vdb'/></disk></devices></domain>"
    )
    live = "<domain><devices/></domain>"
    dom = SimpleNamespace(XMLDesc=lambda flags: xml if flags else live)
    assert definition.excluded_devices(dom) == {
        "vdb": "it takes effect at the next start of the guest",
    }
