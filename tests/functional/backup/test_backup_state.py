"""Firmware variables and TPM state are backed up and restored, with real libvirt, QEMU and
swtpm."""

import json
import os

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")
pytest.importorskip("cryptography")

from saltvirt.backup.model import archive
from tests.functional.backing import GUEST, Machines
from tests.functional.pulled import HAS_LIBNBD

FIRMWARE = "/usr/share/OVMF/OVMF_{}_4M.fd"
pytestmark = [
    pytest.mark.skipif(not HAS_LIBNBD, reason="no libnbd"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a libvirtd of our own needs root"),
    pytest.mark.skipif(not os.path.exists(FIRMWARE.format("CODE")), reason="no OVMF"),
    pytest.mark.skipif(not os.path.exists("/usr/bin/swtpm"), reason="no swtpm"),
]
UEFI = (
    f"<os><type arch='x86_64' machine='q35'>hvm</type><loader readonly='yes' type='pflash'>"
    f"{FIRMWARE.format('CODE')}</loader><nvram template='{FIRMWARE.format('VARS')}'/></os>"
    "<features><acpi/></features>"
)
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm></devices>"
NVRAM = "/var/lib/libvirt/qemu/nvram"
SWTPM = "/var/lib/libvirt/swtpm"
KEY = "printf 'k%.0s' {1..44}"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    found = Machines(tmp_path_factory.mktemp("here"))
    xml = GUEST.format(found.disk).replace("</devices>", TPM)
    old = "<os><type arch='x86_64'>hvm</type></os>"
    assert old in xml
    (found.folder / "web1.xml").write_text(xml.replace(old, UEFI))
    found.sh(
        "mkdir -p /etc/salt-virt; mount -t tmpfs -o mode=755 none /etc/salt-virt; "
        "mkdir -m 700 /etc/salt-virt/backup-keys; "
        f"(umask 077; {KEY} > /etc/salt-virt/backup-keys/state-test.key)"
    )
    yield found
    found.close()


@pytest.fixture
def guest(here):
    """Off; it ran once, so libvirt has made its variables and swtpm its keys."""
    for name in ("web1", "web2"):
        here.virsh(f"destroy {name}", check=False)
        here.virsh(f"undefine {name} --nvram --tpm --checkpoints-metadata", check=False)
    here.sh(f"rm -rf {NVRAM}/* {SWTPM}/* /var/lib/salt-virt/aside")
    here.sh("install -d -o tss -g tss /var/lib/swtpm-localca")
    here.prepare()
    here.virsh("start web1")
    here.virsh("destroy web1")
    return here


def done(here, verb, **asked):
    if verb != "backup_undo":
        asked["folder"] = str(here.target)
    answer, wrong = here.hypervisor.ask(f"virt.{verb}", **asked)
    assert wrong is None, wrong
    return answer


def backed_up(here):
    """To a target with a key: else the state of the TPM stays where it is."""
    return done(here, "backup", name="web1", key="state-test")


def bring(here, **asked):
    return done(here, "backup_bring", name="web1", overcommit=True, **asked)


def uuid(here, name="web1"):
    return here.virsh(f"domuuid {name}").strip()


def digests(here, name="web1", of=None):
    """Of the variables, and of what swtpm has. of: the guest's UUID."""
    places = f"{NVRAM}/{name}_VARS.fd {SWTPM}/{of or uuid(here, name)}/tpm2/tpm2-00.permall"
    return [line.split()[0] for line in here.sh(f"sha256sum {places}").splitlines()]


def change(here, name="web1"):
    """A guest has other variables and other keys by now."""
    for path in (f"{NVRAM}/{name}_VARS.fd", f"{SWTPM}/{uuid(here, name)}/tpm2/tpm2-00.permall"):
        here.sh(f"printf later | dd of={path} conv=notrunc status=none")


def starts(here, name="web1"):
    here.virsh(f"start {name}")
    here.virsh(f"destroy {name}")


@pytest.mark.parametrize("runs", [True, False])
def test_the_state_comes_back_beside_the_guest_and_in_its_place(guest, runs):
    if runs:
        guest.virsh("start web1 --paused")  # else its firmware goes on to use them
    then = digests(guest)
    made = backed_up(guest)
    if runs:
        assert digests(guest) == then
        guest.virsh("destroy web1")
    assert "skipped" not in made or made["skipped"] == {}, made
    [folder] = guest.target.glob(f"*/{made['backup_id']}")
    assert (folder / "state.qcow2").stat().st_mode & 0o777 == 0o600
    told = json.loads((folder / "record.json").read_text())["state"]
    assert told["target"] == "state" and told["stored_bytes"] > 0
    assert [one["problem"] for one in done(guest, "backup_verify")["backups"]] == [None]
    guest.until(lambda: guest.traces() == [])
    # beside it
    beside = bring(guest, new="web2")
    assert not [one for one in beside["warnings"] if "begins with new" in one]
    assert digests(guest, "web2") == then and uuid(guest, "web2") != uuid(guest)
    starts(guest, "web2")
    # in its place, and back
    change(guest)
    changed = digests(guest)
    brought = bring(guest, in_place=True)
    assert digests(guest) == then and "warnings" not in brought
    done(guest, "backup_undo", name="web1")
    assert digests(guest) == changed
    # in its place for good
    bring(guest, in_place=True)
    starts(guest)
    assert guest.hypervisor.ask("virt.backup_confirm", vm_="web1")[1] is None
    assert digests(guest)[1:] == then[1:]
    assert guest.sh(f"ls -d {NVRAM}/*before* {SWTPM}/*before*", check=False) == ""
    # of a guest that is gone
    guest.virsh("undefine web1 --nvram --tpm")
    guest.sh(f"rm {guest.images}/web1_vda*")
    bring(guest)
    assert digests(guest) == then
    starts(guest)


def test_what_an_earlier_guest_left_is_kept_and_named(guest):
    made = backed_up(guest)
    then = digests(guest)
    change(guest)
    changed, mine = digests(guest), uuid(guest)
    guest.virsh("undefine web1 --keep-nvram --keep-tpm")
    guest.sh(f"rm {guest.disk}")
    found = bring(guest)["warnings"]
    assert [one.split(" ")[0] for one in found] == [
        f"{NVRAM}/web1_VARS.fd", f"{SWTPM}/{mine}",
    ]  # fmt: skip
    assert digests(guest) == then
    kept = f"{NVRAM}/web1_VARS.fd.before-restore"
    assert guest.sh(f"sha256sum {kept}").split()[0] == changed[0] and made


@pytest.mark.parametrize("over", [True, False])
def test_a_restore_that_fails_leaves_the_state_that_was_there(guest, over):
    backed_up(guest)
    change(guest)
    changed, mine = digests(guest), uuid(guest)
    if not over:
        guest.virsh("undefine web1 --keep-nvram --keep-tpm")
        guest.sh(f"rm {guest.disk}")
    # swtpm, or whoever got hold of it, has put a link in the way
    place = f"{SWTPM}/{mine}"
    guest.sh(f"mkdir /var/lib/other; chown tss /var/lib/other {SWTPM}")
    guest.sh(f"mv {SWTPM} {SWTPM}.real; ln -s {SWTPM}.real {SWTPM}; chown -h tss {SWTPM}")
    asked = {"name": "web1", "folder": str(guest.target), "in_place": over, "overcommit": True}
    answer, wrong = guest.hypervisor.ask("virt.backup_bring", **asked)
    guest.sh(f"rm {SWTPM}; mv {SWTPM}.real {SWTPM}; chown root {SWTPM}")
    assert answer is None and "is a link that does not belong to root" in wrong
    assert digests(guest, of=mine) == changed
    if over:
        assert str(guest.disk) in guest.virsh("domblklist web1")
    else:
        assert "web1" not in guest.virsh("list --all --name")
    assert guest.sh(f"ls -d {NVRAM}/*before* {place}.*", check=False) == ""


def test_a_restore_that_fails_before_it_reads_the_state_keeps_what_an_earlier_guest_left(guest):
    """Its definition is there by then, and libvirt takes variables away with a definition."""
    backed_up(guest)
    change(guest)
    changed, mine = digests(guest), uuid(guest)
    guest.virsh("undefine web1 --keep-nvram --keep-tpm")
    guest.sh(f"rm {guest.disk}; touch -d '1 hour ago' {NVRAM}/web1_VARS.fd")
    guest.sh(f"mount -t tmpfs -o ro none {guest.images}")
    asked = {"name": "web1", "folder": str(guest.target), "overcommit": True}
    answer, wrong = guest.hypervisor.ask("virt.backup_bring", **asked)
    guest.sh(f"umount -l {guest.images}")
    # else nothing is made there for the tests that follow
    assert guest.hypervisor.ask("virt.forget_mount", point=str(guest.images)) == (True, None)
    assert answer is None and "Read-only file system" in wrong
    assert "web1" not in guest.virsh("list --all --name")
    assert digests(guest, of=mine) == changed


def without_state(guest, made):
    """The backup is as an older Salt Virt made it."""
    [folder] = guest.target.glob(f"*/{made['backup_id']}")
    record = json.loads((folder / "record.json").read_text())
    del record["state"]
    data = json.dumps(record, indent=1, sort_keys=True) + "\n"
    (folder / "record.json").write_text(data)
    guest.sh(f"cd {folder}; rm state.*; sha256sum record.json > record.sha256")


def test_a_backup_from_before_says_that_the_guest_has_new_ones(guest):
    without_state(guest, backed_up(guest))
    changed = digests(guest)
    kept = bring(guest, in_place=True)["warnings"]
    assert kept == [
        f"web1 keeps its {one}: the backup has none" for one in ("firmware variables", "TPM state")
    ]
    assert digests(guest) == changed
    done(guest, "backup_undo", name="web1")
    new = bring(guest, new="web2")["warnings"]
    assert new[:2] == [one.replace("web1 keeps its", "web2 starts with new") for one in kept]


def test_what_an_earlier_guest_left_is_not_said_to_be_new(guest):
    without_state(guest, backed_up(guest))
    mine = uuid(guest)
    guest.virsh("undefine web1 --keep-nvram --keep-tpm")
    guest.sh(f"rm {guest.disk}")
    assert bring(guest)["warnings"] == [
        f"web1 starts with the {what} of an earlier guest in {path}: the backup has none"
        for what, path in [
            ("firmware variables", f"{NVRAM}/web1_VARS.fd"), ("TPM state", f"{SWTPM}/{mine}"),
        ]
    ]  # fmt: skip


def test_variables_in_a_folder_of_its_own_are_not_said_to_be_kept(guest):
    """The restored guest has libvirt's own folder; an undo brings the other one back."""
    without_state(guest, backed_up(guest))
    libvirts, own = f"{NVRAM}/web1_VARS.fd", f"{guest.folder}/own.fd"
    xml = guest.virsh("dumpxml web1 --inactive").replace(libvirts, own)
    assert own in xml
    (guest.folder / "own.xml").write_text(xml)
    guest.sh(f"mv {libvirts} {own}")
    guest.virsh(f"define {guest.folder}/own.xml")
    assert bring(guest, in_place=True)["warnings"] == [
        "web1 starts with new firmware variables: the backup has none; the previous files stay in "
        f"{own} for virt.backup_undo",
        "web1 keeps its TPM state: the backup has none",
    ]
    assert own not in guest.virsh("dumpxml web1 --inactive")
    done(guest, "backup_undo", name="web1")
    assert own in guest.virsh("dumpxml web1 --inactive") and os.path.exists(own)


def test_what_is_a_link_is_in_no_backup_and_named(guest):
    guest.sh(f"mv {NVRAM}/web1_VARS.fd {NVRAM}/x; ln -s {NVRAM}/x {NVRAM}/web1_VARS.fd")
    made = backed_up(guest)
    assert made["skipped"] == {"firmware variables": "web1_VARS.fd is a link"}
    [warning, *_] = bring(guest, new="web2")["warnings"]
    assert warning == "web2 starts with new firmware variables: the backup has none"


def test_one_bad_block_of_the_state_costs_no_disk(guest):
    made = done(guest, "backup", name="web1")
    [folder] = guest.target.glob(f"*/{made['backup_id']}")
    path = folder / "state.qcow2"
    data = path.read_bytes()
    at = data.index(b"variables.fd")
    path.write_bytes(data[:at] + b"x" + data[at + 1 :])
    [found] = done(guest, "backup_verify")["backups"]
    assert found["problem"].startswith("state: ")
    assert bring(guest, disk="vda")["path"]
    asked = {"name": "web1", "folder": str(guest.target), "new": "web2", "overcommit": True}
    assert "is not good: state: " in guest.hypervisor.ask("virt.backup_bring", **asked)[1]
    words = bring(guest, new="web2", damaged=True)["warnings"]
    assert [one for one in words if "starts with new firmware variables: the state in" in one]


def test_the_state_is_encrypted_where_the_disks_are(guest):
    made = backed_up(guest)
    [folder] = guest.target.glob(f"*/{made['backup_id']}")
    assert b"variables.fd" not in (folder / "state.qcow2").read_bytes()
    then = digests(guest)
    bring(guest, new="web2")
    assert digests(guest, "web2") == then


def test_private_keys_of_a_tpm_lie_in_plain_at_no_target(guest):
    made = done(guest, "backup", name="web1")
    [(what, why)] = made["skipped"].items()
    assert (
        what == "TPM state"
        and "the target would store it in plain: set a key for the target" in why
    )
    [folder] = guest.target.glob(f"*/{made['backup_id']}")
    data = (folder / "state.qcow2").read_bytes()
    assert b"variables.fd" in data and b"tpm2-00" not in data


def test_an_archive_is_what_its_digests_say():
    files = {"variables.fd": b"v" * 70000, "tpm/tpm2/tpm2-00.permall": b"secret"}
    data = archive.pack(files)
    assert len(data) % 65536 == 0 and archive.unpack(data, "it") == files


def test_a_guest_that_runs_at_once_starts_with_its_state(guest):
    how = "bs=1 seek=540600 conv=notrunc status=none"
    guest.sh(f"printf marked | dd of={NVRAM}/web1_VARS.fd {how}")
    made, mine = backed_up(guest), uuid(guest)
    guest.virsh("undefine web1 --nvram --tpm")

    def ask(verb, **asked):
        answer, wrong = guest.hypervisor.ask(f"virt.{verb}", **asked)
        assert wrong is None, wrong
        return answer

    reader = ask("backup_reader", once=True)["authority"]
    stand = {"guest": "web1", "host": "hv1"}
    where = {"folder": str(guest.target), "uuid": mine, "backup": made["backup_id"]}
    shown = ask("backup_show", **where, reader=reader, pin=stand)
    assert set(shown["state"]) == {"target", "size_bytes"}, "it is in no answer itself"
    asked = {"shown": shown, "reader": reader, "itself": True, "instant": True}
    found = ask("backup_restore", name="web1", overcommit=True, **asked)
    assert found["state"] == "running" and "warnings" not in found
    assert guest.sh(f"grep -c marked {NVRAM}/web1_VARS.fd") == "1"
    assert guest.sh(f"ls {SWTPM}/{mine}/tpm2/tpm2-00.permall")
    guest.virsh("destroy web1")
    guest.until(lambda: ask("backup_standing", name="web1")["state"] != "pulling")
    ask("backup_hide", reader=reader)
