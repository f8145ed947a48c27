"""The parts of a restored guest, and the refusals before anything is created, with libvirt's test
driver."""

import functools
import os
import re
from dataclasses import replace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.backup.export import (
    in_place_restore,
    live_restore_build,
    live_restore_server,
    live_restores,
    replaced_guest,
    restore,
)
from saltvirt.backup.export.replaced_guest import ReplacedGuest, SavedState
from saltvirt.backup.model.answers import ShownBackup, ShownDisk
from saltvirt.host.domain import metadata
from saltvirt.host.migration import move_journal
from saltvirt.host.provision import admission, guest_builder
from saltvirt.migration.journal import MOVING, GuestReport, JournalEntry
from saltvirt.xml.domain.metadata import NAMESPACE
from tests.functional.backed_up import MIB, UUID, qemu_img

pytestmark = pytest.mark.skipif(not os.path.exists("/usr/bin/qemu-img"), reason="no qemu-img")
OTHER = UUID.replace("b7", "c8")
MAC = "52:54:00:11:22:33"
WEB1 = f"""<domain type='test'><name>web1</name><uuid>{UUID}</uuid><genid>{OTHER}</genid>
<metadata><s:guest xmlns:s='{NAMESPACE}' version='1'><s:entry key='groups'>a</s:entry>
<s:entry key='backup'>yes</s:entry>
<s:disk target='vda' path='/srv/old.qcow2'/></s:guest></metadata>
<memory>1024</memory><os><type>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/srv/old.raw'/>
<target dev='vda'/></disk>
<disk type='file' device='disk'><source file='/srv/not-saved.raw'/><target dev='vdb'/></disk>
<disk type='file' device='cdrom'><source file='/srv/a.iso'/><target dev='hda'/><readonly/></disk>
<interface type='network'><mac address='{MAC}'/><source network='default'/>
<target dev='vnet7'/></interface>
<graphics type='vnc' port='5907' autoport='no'/></devices></domain>"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    monkeypatch.setattr(replaced_guest, "FOLDER", str(tmp_path / "aside"))
    given = {"virt:images": str(tmp_path / "images"), "virt:lock": str(tmp_path / "lock")}
    given["virt:placement"] = {"reserved_memory_kib": 0, "memory_ratio": 10}
    get = functools.partial(_get, given)
    return guest_builder.Tools(admission.AdmissionConfig.configured(get))


def _get(given, key, default=None):
    return given.get(key, default)


def made(conn, tools, *targets, itself=True, name="web1"):
    shown = tuple(ShownDisk(target, MIB) for target in targets)
    told = ShownBackup("000001-x", "web1", "b1", 1, WEB1, shown, "")
    return restore.RestoreBuilder(conn, guest_builder.GuestRequest(name), tools, told, "", itself)


@pytest.mark.parametrize("itself", [True, False])
def test_what_a_guest_from_a_backup_is(conn, tools, itself):
    one = made(conn, tools, "vda", itself=itself, name="web2")
    [shown] = one.shown.disks
    one.builds.append(one.disk_build(shown, one.choose_path("vda")))
    path = f"{tools.admission_config.images_dir}/web2_vda.qcow2"
    built = one.definition()
    text = built.tostring()
    assert built.name == "web2" and "/srv/" not in text
    disk, drive = built.disks
    assert (disk.source.file, disk.driver_type, disk.target) == (path, "qcow2", "vda")
    assert (drive.device, drive.source.file) == ("cdrom", None)
    assert [(own.target, own.path) for own in built.record.disks] == [("vda", path)]
    for own in (UUID, MAC, "vnet7", "5907"):
        assert (own in text) is itself, own
    # by another generation ID a system notices that its disks were set back
    assert OTHER not in text and "<genid" in text
    # another guest is backed up only if that is said of it, too
    kept = {entry.key for entry in built.record.entries}
    assert kept == ({"groups", "backup"} if itself else {"groups"})
    assert "/srv/old.raw" in WEB1 and one.model.name == "web1", "the backup's own stays as it is"


SEEDED = WEB1.replace("version='1'>", "version='1' seeded='yes' created='2026-01-02T03:04:05Z'>")


def second(conn, tools, seed, definition=SEEDED):
    """What makes another guest, web2, of a backup of web1, whose only disk becomes a small file."""
    told = ShownBackup("000001-x", "web1", "b1", 1, definition, (ShownDisk("vda", MIB),), "")
    one = restore.RestoreBuilder(
        conn, guest_builder.GuestRequest("web2", seed), tools, told, "", False
    )
    one._argv = lambda _target, path: ["qemu-img", "create", "-q", "-f", "qcow2", path, str(MIB)]
    return one


def test_a_second_guest_gets_an_identity_beside_its_original(conn, tools):
    """Else both have one machine-id, so one address by DHCP, and both are one minion."""
    given = []
    tools.seeder = lambda *arguments: given.append(arguments) or "KEY"
    found = second(conn, tools, True).run()
    path = f"{tools.admission_config.images_dir}/web2_vda.qcow2"
    [nic] = found.nics
    assert given == [("web2", path, "qcow2", [{"mac": nic.mac, "original_mac": MAC}])]
    assert (found.pub_key, found.warnings) == ("KEY", ())
    assert metadata.of_domain(conn.lookupByName("web2")).seeded is True


def test_a_second_guest_has_nothing_by_which_others_know_its_original(conn, tools):
    port = f"<virtualport type='openvswitch'><parameters interfaceid='{OTHER}'/></virtualport>"
    system = f"<system><entry name='uuid'>{UUID}</entry></system>"
    text = SEEDED.replace("<target dev='vnet7'/>", port)
    text = text.replace("<devices>", f"<sysinfo type='smbios'>{system}</sysinfo><devices>")
    second(conn, tools, False, text).run()
    found = conn.lookupByName("web2").XMLDesc(0)
    assert conn.lookupByName("web2").UUIDString() != UUID
    assert UUID not in found and OTHER not in found


def test_a_disk_that_guests_share_is_restored_as_one_of_the_guest_alone(conn, tools):
    """libvirt refuses a qcow2 that is to be shared."""
    text = SEEDED.replace("<target dev='vda'/>", "<target dev='vda'/><shareable/>")
    words = second(conn, tools, False, text).run().warnings
    assert "shareable" not in conn.lookupByName("web2").XMLDesc(0)
    assert sum("disk vda was shared with other guests" in one for one in words) == 1


@pytest.mark.parametrize("itself", [True, False])
def test_devices_of_the_host_that_it_was_on_are_named(conn, tools, itself):
    at = "<address domain='0x0000' bus='0x03' slot='0x00' function='0x0'/>"
    device = f"<hostdev mode='subsystem' type='pci' managed='yes'><source>{at}</source></hostdev>"
    nic = f"<interface type='hostdev'><mac address='{MAC[:-1]}4'/><source>{at}</source></interface>"
    one = second(conn, tools, False, SEEDED.replace("</devices>", f"{device}{nic}</devices>"))
    one.is_same_guest = itself
    one.warn_devices()
    [said] = tools.warnings
    assert f"(pci 0 3 0 0, interface {MAC[:-1]}4)" in said and "before you start it" in said


def test_one_of_which_it_is_kept_how_it_was_is_not_made_anew(conn, tools):
    """Its files would have the names of those that an undo deletes."""
    kept()
    with pytest.raises(
        errors.Refused, match=r"the state of web1 before the restore of 000001-x is still saved"
    ):
        made(conn, tools, "vda").check()
    made(conn, tools, "vda", itself=False, name="web2").check()


@pytest.mark.parametrize("damaged", [True, False])
def test_a_damaged_state_is_in_the_way_of_no_disk(conn, tools, damaged):
    text = SEEDED.replace("</os>", "<loader type='pflash'>/x</loader><nvram>/n</nvram></os>")
    one = second(conn, tools, False, text)
    one.shown = replace(one.shown, damaged=damaged, state=ShownDisk("state", 65536))
    argv, one._argv = one._argv, lambda target, path, *more: (
        ["truncate", "-s", "64K", path] if target == "state" else argv(target, path)
    )  # fmt: skip
    if not damaged:
        with pytest.raises(errors.BadAnswer, match="not a valid state archive"):
            one.run()
        return
    words = one.run().warnings
    assert [one for one in words if "starts with new firmware variables: the state in" in one]
    assert "disk vdb is not restored: the backup does not export it" in words


def test_a_second_guest_whose_system_stays_as_it_is_is_named(conn, tools):
    [words] = second(conn, tools, False).run().warnings
    assert words.startswith("the system in web2 was not seeded: it has the machine-id")
    assert metadata.of_domain(conn.lookupByName("web2")).seeded is True, "a rename changes it"


def test_where_nothing_can_seed_no_second_guest_is_made(conn, tools):
    with pytest.raises(errors.Unsupported, match="use seed=False"):
        second(conn, tools, True).run()
    assert "web2" not in [dom.name() for dom in conn.listAllDomains()]


@pytest.mark.parametrize("definition", [WEB1, SEEDED])
def test_a_restored_guest_is_seeded_as_it_was(conn, tools, definition):
    """By that a rename knows that the minion in it gets the new name."""
    told = ShownBackup("000001-x", "web1", "b1", 1, definition, (ShownDisk("vda", MIB),), "")
    assert told.seeded is (definition is SEEDED)
    one = restore.RestoreBuilder(conn, guest_builder.GuestRequest("web1"), tools, told, "", True)
    record = one.definition().record
    assert (record.seeded, record.created) == (
        (True, "2026-01-02T03:04:05Z") if definition is SEEDED else (None, None)
    )


def test_a_second_guest_does_not_run_at_once_with_the_identity_of_its_original(conn, tools):
    given = guest_builder.GuestRequest("web2", True)
    told = ShownBackup("000001-x", "web1", "b1", 1, SEEDED, (ShownDisk("vda", MIB),), "")
    one = live_restore_build.LiveRestoreBuilder(conn, given, tools, told, "", False)
    with pytest.raises(errors.Unsupported, match="identity of its original: use instant=False"):
        one.check()


def test_a_disk_of_which_the_definition_knows_nothing(conn, tools):
    with pytest.raises(errors.BadAnswer, match="the definition in the backup has no disk vdz"):
        made(conn, tools, "vda", "vdz").check()


@pytest.mark.parametrize("target", ["x/../../foreign", "../foreign", "vda?socket=/run/x", ""])
def test_what_is_shown_names_no_file_but_the_guests(conn, tools, target):
    """The machine of the target says what its disks are called."""
    definition = WEB1.replace("dev='vda'", f"dev='{target}'")
    told = ShownBackup("000001-x", "web1", "b1", 1, definition, (ShownDisk(target, MIB),), "")
    with pytest.raises(errors.BadAnswer, match=r"b1 exports a disk .*, which is not a valid name"):
        restore.RestoreBuilder(conn, guest_builder.GuestRequest("web1"), tools, told, "", True)


@pytest.mark.parametrize("there", ["a file", "a link to nothing"])
def test_what_is_in_the_place_of_a_disk_stays(conn, tools, there):
    path = f"{tools.admission_config.images_dir}/web1_vda.qcow2"
    if there == "a file":
        with open(path, "w", encoding="ascii") as file:
            file.write("x")
    else:
        os.symlink("/nonexistent/x", path)
    with pytest.raises(errors.AlreadyExists, match=f"disk vda: {re.escape(path)} already exists"):
        made(conn, tools, "vda").check()
    assert os.path.lexists(path)


# -- in the place of one that is there -----------------------------------------------------------


@pytest.fixture
def dom(conn):
    text = re.sub("<interface.*?/interface>|<graphics.*?/>|<genid.*?/genid>", "", WEB1, flags=re.S)
    return conn.defineXML(text)


# of a guest that had no disk of its own
DISKLESS = re.sub("<metadata>.*?</metadata>|<disk.*?</disk>", "", WEB1, flags=re.S)


def kept(name="web1", uuid=UUID, made=("/new.qcow2",), definition=DISKLESS):
    replaced_guest.store(ReplacedGuest(uuid, name, "000001-x", definition, made))


def made_of(dom):
    """All that its definition names, as if a backup had made that."""
    return tuple(re.findall(r"/srv/[a-z.0-9-]+", dom.XMLDesc(0)))


def why(conn):
    return in_place_restore.inspect(conn, "web1", True).reasons


def test_one_with_saved_memory_is_left_alone(conn, tools, dom):
    """Its memory goes on only over the disks that it had."""
    dom.create()
    dom.managedSave(0)
    assert why(conn) == (
        "web1 has saved memory, which belongs to its present disks: start it first",
    )


def test_one_that_is_defined_nowhere_is_left_alone(conn, tools, dom):
    dom.create()
    dom.undefine()
    [said] = why(conn)
    assert said == "web1 is transient: it has no stored definition to save"


def test_one_with_snapshots_is_left_alone(conn, tools, dom):
    dom.create()
    dom.snapshotCreateXML("<domainsnapshot><name>s</name></domainsnapshot>", 0)
    [said] = why(conn)
    assert said.startswith("web1 has snapshots, which belong to its present disks")


def test_one_whose_migration_was_broken_off_is_left_alone(conn, tools, dom, tmp_path, monkeypatch):
    """It may run on the target by now."""
    folder = str(tmp_path / "moves")
    asked = functools.partial(move_journal.require_startable, folder=folder)
    monkeypatch.setattr(move_journal, "require_startable", asked)
    about = GuestReport("web1", UUID, "hv1", False, "shutdown")
    with move_journal.MigrationJournal(folder, "web1") as journal:
        journal.write(JournalEntry(about, "qemu+tls://hv2/system", MOVING))
    [said] = why(conn)
    assert "the target of an interrupted migration" in said
    kept(made=made_of(dom))
    with pytest.raises(errors.Refused, match="target of an interrupted migration"):
        in_place_restore.undo(conn, tools.admission_config, "web1", True)
    assert [one.uuid for one in replaced_guest.load_all()] == [UUID]


def test_what_is_kept_of_two_of_one_name_is_nobodys(conn, tools):
    """Both are gone; which of them is meant nobody can say."""
    kept()
    kept(uuid=OTHER)
    for ask in (lambda: in_place_restore.plan(conn, "web1"),
                lambda: in_place_restore.undo(conn, tools.admission_config, "web1",
                False)):  # fmt: skip
        with pytest.raises(
            errors.Refused,
            match="the previous states of two guests with the name web1 are saved: see /",
        ):
            ask()
    assert len([*replaced_guest.load_all()]) == 2


def test_what_is_kept_of_a_guest_that_is_gone_is_found_beside_another_of_its_name(conn, tools, dom):
    kept(uuid=OTHER)
    assert in_place_restore.plan(conn, "web1").delete == []
    with pytest.raises(
        errors.Refused, match="another guest now has the name web1: rename or purge"
    ):
        in_place_restore.undo(conn, tools.admission_config, "web1", True)
    assert conn.lookupByName("web1").UUIDString() == UUID
    in_place_restore.confirm(conn, tools.admission_config, "web1")
    assert [*replaced_guest.load_all()] == []
    with pytest.raises(errors.NotFound, match=r"web1 on .* has no in-place restore"):
        in_place_restore.plan(conn, "web1")


def test_one_that_was_renamed_since_is_not_brought_back_under_its_old_name(conn, tools, dom):
    kept(name="old", made=made_of(dom))
    with pytest.raises(
        errors.Refused, match="web1 had the name old before the restore: rename it back first"
    ):
        in_place_restore.undo(conn, tools.admission_config, "web1", False)


def test_the_disks_of_one_that_is_as_it_was_are_not_deleted(conn, tools, dom, tmp_path):
    """The restore did not come to its end: what it had before is what it has."""
    kept(made=(str(tmp_path / "new.qcow2"),))
    for ask in (lambda: in_place_restore.plan(conn, "web1"),
                lambda: in_place_restore.confirm(conn, tools.admission_config,
                "web1")):  # fmt: skip
        with pytest.raises(
            errors.Refused, match=r"web1 was not changed, because the restore of 000001-x did"
        ):
            ask()
    assert [*replaced_guest.load_all()]


def test_one_that_has_other_disks_by_now_is_neither_brought_back_nor_confirmed(
    conn, tools, dom, tmp_path
):
    """Its new disk was put elsewhere, as by virsh blockcopy: it is not as it was, and nobody knows
    which of the two it is to be."""
    new, old = tmp_path / "new.qcow2", tmp_path / "old.raw"
    for path in (new, old):
        path.write_text("x")
    kept(made=(str(new),), definition=re.sub("/srv/[a-z.0-9-]*", str(old), dom.XMLDesc(0)))
    for ask in (lambda: in_place_restore.plan(conn, "web1"),
                lambda: in_place_restore.undo(conn, tools.admission_config, "web1",
                False)):  # fmt: skip
        with pytest.raises(
            errors.Refused, match="web1 has neither the disks from before the restore of"
        ):
            ask()
    assert [*replaced_guest.load_all()] and new.exists() and "/srv/old.raw" in dom.XMLDesc(0)


def test_what_it_had_stays_while_the_new_disks_are_not_whole(conn, tools, tmp_path, monkeypatch):
    """Also where what says on which backup it stands is gone, or was never written: whoever made
    the guest was killed."""
    monkeypatch.setattr(live_restores, "FOLDER", str(tmp_path / "stands"))
    name = "w" * 70
    for guest, socket in (("web1", live_restore_server.socket_path("web1")), (name, "/run/other")):
        below = (
            "<backingStore type='network'><format type='raw'/><source protocol='nbd' name='vda'>"
            f"<host transport='unix' socket='{socket}'/></source><backingStore/></backingStore>"
        )
        new = "<driver name='qemu' type='qcow2'/><source file='/new.qcow2'/>"
        old = "<driver name='qemu' type='raw'/><source file='/srv/old.raw'/>"
        text = WEB1.replace(old, new + below).replace("<name>web1<", f"<name>{guest}<")
        conn.defineXML(re.sub("<interface.*?/interface>", "", text, flags=re.S))
        kept(guest)
        if guest == name:  # none that runs from a backup has such a name
            assert in_place_restore.confirm(conn, tools.admission_config, guest).delete == []
            continue
        for act in (
            in_place_restore.plan,
            lambda conn, name: in_place_restore.confirm(conn, tools.admission_config, name),
        ):
            with pytest.raises(errors.Refused, match="web1 still runs from the backup 000001-x"):
                act(conn, guest)
        assert replaced_guest.load(UUID)
        conn.lookupByName(guest).undefine()


def test_an_undo_that_is_called_again_leaves_what_the_guest_has_made_since(
    conn, tools, dom, tmp_path, monkeypatch
):
    """It had no firmware variables. A file is in use, so the undo is to be called again; meanwhile
    the guest is started."""
    variables = tmp_path / "web1_VARS.fd"
    variables.write_text("of the backup")
    state = (SavedState(str(variables), f"{variables}.before-restore", False),)
    replaced_guest.store(ReplacedGuest(UUID, "web1", "000001-x", DISKLESS, (), state))
    with monkeypatch.context() as patch:
        patch.setattr(in_place_restore, "_remove_created", lambda *_: {"/new.qcow2": "in use"})
        assert in_place_restore.undo(conn, tools.admission_config, "web1", False).leftovers == (
            "in use",
        )
    assert not variables.exists()
    variables.write_text("of the guest")
    assert in_place_restore.undo(conn, tools.admission_config, "web1", False).leftovers == ()
    assert variables.read_text() == "of the guest" and not [*replaced_guest.load_all()]


def test_that_libvirt_took_it_as_it_was_is_looked_at(conn, tools, dom, tmp_path, monkeypatch):
    new, old = str(tmp_path / "new.qcow2"), str(tmp_path / "old.qcow2")
    for path in (new, old):
        qemu_img("create", "-q", "-f", "qcow2", path, str(MIB))
    text = dom.XMLDesc(0)
    conn.defineXML(re.sub("/srv/[a-z.0-9-]*", new, text))
    kept(made=(new,), definition=re.sub("/srv/[a-z.0-9-]*", old, text))
    monkeypatch.setattr(
        in_place_restore.lookup, "define", lambda conn, _text: conn.lookupByName("web1")
    )
    with pytest.raises(
        errors.OperationFailed, match="libvirt did not accept the previous definition of web1"
    ):
        in_place_restore.undo(conn, tools.admission_config, "web1", False)
    assert os.path.exists(new) and [*replaced_guest.load_all()]
