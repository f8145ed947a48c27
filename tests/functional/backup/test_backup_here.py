"""Backup and restore on one host with a folder of its own, with real QEMU and libvirt."""

import hashlib
import json
import os
import re

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")
pytest.importorskip("cryptography")

from saltvirt.xml.domain.domain import Domain
from tests.functional.backing import MIB, Machines
from tests.functional.pulled import HAS_LIBNBD

pytestmark = [
    pytest.mark.skipif(not HAS_LIBNBD, reason="no libnbd"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a libvirtd of our own needs root"),
]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    found = Machines(tmp_path_factory.mktemp("here"))
    found.prepare()
    yield found
    found.close()


def done(here, verb, **asked):
    answer, wrong = here.hypervisor.ask(f"virt.{verb}", folder=str(here.target), **asked)
    assert wrong is None, wrong
    return answer


def refused(here, verb, **asked):
    asked = {"folder": str(here.target), **asked}
    answer, wrong = here.hypervisor.ask(f"virt.{verb}", **asked)
    assert answer is None and "\n" not in wrong, (answer, wrong)
    return wrong


def holds(here, path, then):
    raw = here.folder / "raw"
    here.sh(f"qemu-img convert -U -O raw {path} {raw}")
    return hashlib.sha256(raw.read_bytes()).digest() == hashlib.sha256(then).digest()


def test_there_and_back(here):
    here.virsh("start web1")
    here.write(0, 3 * MIB, 7)
    would = done(here, "backup", name="web1", test=True)
    assert "first backup" in would["disks"]["vda"] and here.traces() == []
    assert done(here, "backup_list") == []
    first = done(here, "backup", name="web1")
    then = bytes(here.now)
    here.write(MIB, 70_000, 9)
    second = done(here, "backup", name="web1")
    assert second["disks"] == {"vda": first["backup_id"]} and second["leftovers"] == []
    assert second["moved_bytes"] <= 3 * 65536
    names = here.virsh("checkpoint-list web1 --name").split()
    assert names == [f"salt-virt.{second['backup_id']}"]
    listed = done(here, "backup_list")
    assert [one["backup_id"] for one in listed] == [first["backup_id"], second["backup_id"]]
    found = done(here, "backup_verify")["backups"]
    assert [one["problem"] or one["error"] for one in found] == [None, None]
    # beside it, as it was at first
    asked = {"name": "web1", "backup": "1", "new": "web2"}
    assert done(here, "backup_bring", **asked, test=True) == {"backup_id": first["backup_id"]}
    made = done(here, "backup_bring", **asked, overcommit=True)
    assert (made["name"], made["backup_id"]) == ("web2", first["backup_id"])
    assert holds(here, here.images / "web2_vda.qcow2", then)
    # its disk alone, as a file
    found = done(here, "backup_bring", name="web1", backup="1", disk="vda", overcommit=True)
    assert found["backup_id"] == first["backup_id"] and holds(here, found["path"], then)
    os.unlink(found["path"])
    # itself is here
    assert "web1" in refused(here, "backup_bring", name="web1", overcommit=True)
    # in its place, and back
    done(here, "backup_bring", name="web1", in_place=True, stop=True, overcommit=True)
    assert here.state().startswith("shut off")
    assert str(here.disk) not in here.virsh("domblklist web1")
    _, wrong = here.hypervisor.ask("virt.backup_undo", name="web1")
    assert wrong is None and str(here.disk) in here.virsh("domblklist web1")
    # by the name that it has since, and by the one that it had
    here.virsh("domrename web1 web9")
    for called in ("web9", "web1"):
        made = done(here, "backup_bring", name=called, in_place=True, overcommit=True)
        assert made["name"] == "web9"
        _, wrong = here.hypervisor.ask("virt.backup_undo", name="web9")
        assert wrong is None and str(here.disk) in here.virsh("domblklist web9")
    here.virsh("domrename web9 web1")
    here.until(lambda: here.traces() == [])


def test_what_cannot_be(here):
    assert "web9" in refused(here, "backup", name="web9")
    assert "/nowhere" in refused(here, "backup", name="web1", folder="/nowhere")
    assert refused(here, "backup_bring", name="web9")
    assert "no disk 'vdz'; its disks are vda" in refused(
        here, "backup_bring", name="web1", disk="vdz"
    )
    words = refused(here, "backup_bring", name="web1", disk="vda", new="web2")
    assert "cannot be combined with in_place or disk" in words
    assert here.traces() == []


def test_a_guest_whose_creation_was_interrupted_is_not_backed_up(here):
    """Its disks may be empty. Nor does a backup take its place: a person decides about it."""
    here.prepare()
    done(here, "backup", name="web1")
    record = (
        "<metadata><s:guest xmlns:s='https://saltproject.io/xmlns/salt-virt/1' "
        "created='2026-01-01T00:00:00Z' creating='1:1:dead'/></metadata>"
    )
    text = (here.folder / "web1.xml").read_text()
    uuid = here.virsh("domuuid web1")
    marked = text.replace("</name>", f"</name><uuid>{uuid}</uuid>{record}")
    (here.folder / "marked.xml").write_text(marked)
    here.virsh(f"define {here.folder}/marked.xml")
    words = "its creation was interrupted: run salt-run virt.repair name=web1"
    for state in ("shut off", "running"):
        if state == "running":
            here.virsh("start web1")
        assert words in refused(here, "backup", name="web1"), state
        said = refused(here, "backup_bring", name="web1", in_place=True, stop=True, overcommit=True)
        assert words in said, state
        assert here.state().startswith(state)
        assert str(here.disk) in here.virsh("domblklist web1")
    assert len(done(here, "backup_list")) == 1
    here.until(lambda: here.traces() == [])


def stored(here, ident, name="domain.xml"):
    [path] = here.target.glob(f"*/{ident}/{name}")
    return path.read_text()


def test_the_definition_is_the_stored_one_with_the_disks_of_now(here):
    """Else a restored guest has the CPU of the host on which it ran, which no other host has."""
    here.prepare()
    xml = here.virsh("dumpxml web1")
    cpu = "<cpu mode='host-model' check='partial'/><on_poweroff>destroy</on_poweroff>"
    folder = "<filesystem type='mount'><source dir='/srv'/><target dir='srv'/></filesystem>"
    xml = re.sub(r"<cpu.*?(</cpu>|/>)\s*", "", xml, flags=re.S)
    xml = xml.replace("<on_poweroff>destroy</on_poweroff>", cpu, 1)
    xml = xml.replace(
        "</devices>", f"{folder}<controller type='scsi' model='virtio-scsi'/></devices>"
    )
    (here.folder / "model.xml").write_text(xml)
    here.virsh(f"define {here.folder}/model.xml")
    added = here.folder / "more.qcow2"
    here.virsh("start web1")
    assert "mode='custom'" in here.virsh("dumpxml web1"), "libvirt has expanded it"
    here.sh(f"qemu-img create -q -f qcow2 {added} 8M")
    here.virsh(f"attach-disk web1 {added} sda --targetbus scsi --live --subdriver qcow2")
    made = done(here, "backup", name="web1")
    found = Domain.fromstring(stored(here, made["backup_id"]))
    assert found.cpu.mode == "host-model" and found.id is None
    assert [disk.target for disk in found.disks] == ["vda", "sda"]
    assert found.disks[1].source.file == str(added) and not found.disks[1].alias
    assert "a folder of the host, /srv" in made["skipped"]["srv"]
    assert json.loads(stored(here, made["backup_id"], "record.json"))["skipped"] == made["skipped"]
    brought = done(here, "backup_bring", name="web1", new="web3", overcommit=True)
    assert brought["skipped"] == made["skipped"]
    assert "host-model" in here.virsh("dumpxml web3 --inactive")
    here.virsh("undefine web3")


def test_disks_that_end_within_a_sector_or_have_no_byte(here):
    """QEMU shows whole sectors of the one, and the other costs the guest no backup."""
    here.prepare()
    odd, empty = here.folder / "odd.raw", here.folder / "empty.raw"
    odd.write_bytes(b"x" * 1000)
    empty.write_bytes(b"")
    disk = (
        "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{}'/>"
        "<target dev='{}' bus='virtio'/></disk>"
    )
    disks = disk.format(odd, "vdb") + disk.format(empty, "vdc")
    xml = here.virsh("dumpxml web1").replace("</devices>", f"{disks}</devices>")
    (here.folder / "odd.xml").write_text(xml)
    here.virsh(f"define {here.folder}/odd.xml")
    made = done(here, "backup", name="web1")
    assert made["skipped"] == {"vdc": "its size is 0"}
    path = done(here, "backup_bring", name="web1", disk="vdb", overcommit=True)["path"]
    here.sh(f"qemu-img convert -O raw {path} {here.folder}/odd.restored")
    assert (here.folder / "odd.restored").read_bytes() == (b"x" * 1000).ljust(1024, b"\0")


def test_what_is_encrypted_lies_in_plain_at_no_target(here):
    here.prepare()
    secret = here.folder / "secret.xml"
    uuid = "b7d1f0a2-52a3-4c0e-9d53-0f8f6e1f4d12"
    secret.write_text(f"<secret ephemeral='no' private='yes'><uuid>{uuid}</uuid></secret>")
    here.virsh(f"secret-define {secret}")
    here.sh(
        "printf letmein | virsh -q -c "
        f"{here.daemon.uri} secret-set-value {uuid} --plain --file /dev/stdin"
    )
    more = here.folder / "locked.qcow2"
    # on a busy machine qemu-img may be "Unable to get accurate CPU usage"
    here.sh(
        "for _ in $(seq 20); do qemu-img create -q -f qcow2 --object secret,id=s,data=letmein -o "
        f"encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10 {more} 8M && exit; "
        "done; exit 1"
    )
    disk = (
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{more}'>"
        f"<encryption format='luks'><secret type='passphrase' uuid='{uuid}'/></encryption></source>"
        "<target dev='vdb' bus='virtio'/></disk></devices>"
    )
    xml = here.virsh("dumpxml web1").replace("</devices>", disk)
    (here.folder / "locked.xml").write_text(xml)
    here.virsh(f"define {here.folder}/locked.xml")
    off = done(here, "backup", name="web1")
    assert off["skipped"]["vdb"].startswith("it is encrypted by libvirt")
    here.virsh("start web1")
    words = refused(here, "backup", name="web1")
    assert words.startswith("refused: vdb of web1 is encrypted, and the target ")
    here.virsh("destroy web1")
