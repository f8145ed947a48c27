"""Backups on one host: its guest into a folder of its own, and back; with real QEMU and libvirt."""

import hashlib
import os

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")
pytest.importorskip("cryptography")

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
    assert second["disks"] == {"vda": first["ident"]} and second["left"] == []
    assert second["moved_bytes"] <= 3 * 65536
    names = here.virsh("checkpoint-list web1 --name").split()
    assert names == [f"salt-virt.{second['ident']}"]
    listed = done(here, "backup_list")
    assert [one["ident"] for one in listed] == [first["ident"], second["ident"]]
    found = done(here, "backup_verify")["backups"]
    assert [one["wrong"] or one["trouble"] for one in found] == [None, None]
    # beside it, as it was at first
    asked = {"name": "web1", "backup": "1", "new": "web2"}
    assert done(here, "backup_bring", **asked, test=True) == {"ident": first["ident"]}
    made = done(here, "backup_bring", **asked, overcommit=True)
    assert (made["name"], made["ident"]) == ("web2", first["ident"])
    assert holds(here, here.images / "web2_vda.qcow2", then)
    # its disk alone, as a file
    found = done(here, "backup_bring", name="web1", backup="1", disk="vda", overcommit=True)
    assert found["ident"] == first["ident"] and holds(here, found["path"], then)
    os.unlink(found["path"])
    # itself is here
    assert "web1" in refused(here, "backup_bring", name="web1", overcommit=True)
    # in its place, and back
    done(here, "backup_bring", name="web1", over=True, stop=True, overcommit=True)
    assert here.state().startswith("shut off")
    assert str(here.disk) not in here.virsh("domblklist web1")
    _, wrong = here.hypervisor.ask("virt.backup_undo", name="web1")
    assert wrong is None and str(here.disk) in here.virsh("domblklist web1")
    here.until(lambda: here.traces() == [])


def test_what_cannot_be(here):
    assert "web9" in refused(here, "backup", name="web9")
    assert "/nowhere" in refused(here, "backup", name="web1", folder="/nowhere")
    assert refused(here, "backup_bring", name="web9")
    assert "no disk 'vdz', but vda" in refused(here, "backup_bring", name="web1", disk="vdz")
    words = refused(here, "backup_bring", name="web1", disk="vda", new="web2")
    assert "not with over or disk" in words
    assert here.traces() == []
