"""Snapshots of a guest with a real disk: written data is back, or gone."""

import pytest

from tests.integration.hv import file_disk, guest

pytestmark = pytest.mark.lab

DISK = "/srv/labsnap/disk.qcow2"


@pytest.fixture(autouse=True)
def box(hv):
    """A guest that is shut off, with an 8 MiB disk full of ones."""
    hv.sh(f"rm -rf /srv/labsnap; mkdir -p /srv/labsnap; qemu-img create -q -f qcow2 {DISK} 8M")
    write(hv, 1)
    hv.define("", guest("labsnap", file_disk(DISK)))
    yield "labsnap"
    hv.sh("virsh -q destroy labsnap; virsh -q undefine labsnap --snapshots-metadata; "
          "rm -rf /srv/labsnap", check=False)  # fmt: skip


def write(hv, pattern):
    hv.sh(f"qemu-io -c 'write -P {pattern} 0 8M' {DISK}")


def holds(hv, pattern):
    text = hv.sh(f"qemu-io -c 'read -P {pattern} 0 8M' {DISK}")
    return "verification failed" not in text


def names(hv):
    return hv.table("snapshot-list", "labsnap", "--name")


def test_internal(hv, box):
    assert hv.call("virt.list_snapshots", box) == {box: "N/A"}
    for name, pattern in (("one", 2), ("two", 3), ("three", 4)):
        assert hv.call("virt.snapshot", box, name) == {"name": name}
        write(hv, pattern)
    assert names(hv) == ["one", "three", "two"]
    assert len(hv.sh(f"qemu-img snapshot -l {DISK}").splitlines()) == 5
    found = hv.call("virt.list_snapshots")[box]
    assert [(s["name"], s["parent"], s["current"]) for s in found] == [
        ("one", None, False), ("two", "one", False), ("three", "two", True),
    ]  # fmt: skip
    assert {(s["running"], s["external"], s["state"]) for s in found} == {(False, False, "shutoff")}

    assert hv.call("virt.revert_snapshot", box) == {"reverted": "two", "deleted": "N/A"}
    assert holds(hv, 2)
    assert hv.call("virt.revert_snapshot", box, "three")["reverted"] == "three"
    assert holds(hv, 3)
    found = hv.call("virt.revert_snapshot", box, "one", cleanup=True)
    assert (found["reverted"], sorted(found["deleted"])) == ("one", ["three", "two"])
    assert holds(hv, 1)
    assert names(hv) == ["one"]
    assert hv.call("virt.delete_snapshots", box, "one")["available"] == {box: "N/A"}
    assert hv.sh(f"qemu-img snapshot -l {DISK}") == ""


def test_delete_needs_names_and_knows_them(hv, box):
    for name in ("one", "two", "three"):
        hv.call("virt.snapshot", box, name)
    assert "all=True" in hv.refuses("virt.delete_snapshots", box)
    assert "no snapshot zwei" in hv.refuses("virt.delete_snapshots", box, "one", "zwei")
    assert names(hv) == ["one", "three", "two"]
    found = hv.call("virt.delete_snapshots", box, "two", children=True)
    assert sorted(found["deleted"]) == ["three", "two"]
    assert names(hv) == ["one"]
    hv.call("virt.snapshot", box, "four")
    assert sorted(hv.call("virt.delete_snapshots", box, all=True)["deleted"]) == ["four", "one"]
    assert names(hv) == []


def test_a_running_guest_with_its_memory(hv, box):
    hv.virsh("start", box)
    assert hv.call("virt.snapshot", box, suffix="salt")["name"].endswith("-salt")
    (found,) = hv.call("virt.list_snapshots", box)[box]
    assert (found["running"], found["state"]) == (True, "running")
    hv.virsh("destroy", box)
    hv.call("virt.revert_snapshot", box, found["name"])
    assert hv.virsh("domstate", box).strip() == "running"


def test_external_of_the_disk_alone(hv, box):
    hv.virsh("start", box)
    hv.call("virt.snapshot", box, "layer", disk_only=True, description="before")
    assert hv.virsh("domblklist", box).split() == ["vda", "/srv/labsnap/disk.layer"]
    (found,) = hv.call("virt.list_snapshots", box)[box]
    assert (found["external"], found["state"], found["description"]) == (
        True, "disk-snapshot", "before",
    )  # fmt: skip
    assert "agent" in hv.refuses("virt.snapshot", box, "q", disk_only=True, quiesce=True)
    assert names(hv) == ["layer"]


def test_back_to_an_external_one_and_those_on_top_go(hv, box):
    """libvirt 9.0 cannot by itself."""
    for name in ("one", "two", "three"):
        hv.call("virt.snapshot", box, name, disk_only=True)
    assert "cleanup=True" in hv.refuses("virt.revert_snapshot", box, "two")
    layer = "/srv/labsnap/disk.two"
    hv.sh(f"chmod 640 {layer}")
    hv.sh(f"qemu-io -c 'write -P 9 0 8M' {layer}")
    hv.virsh("start", box)
    found = hv.call("virt.revert_snapshot", box, "two", cleanup=True)
    assert found == {"reverted": "two", "deleted": ["three"]}
    assert hv.virsh("domstate", box).strip() == "shut off"
    _target, layer = hv.virsh("domblklist", box).split()  # libvirt from 9.9 on begins another
    assert "verification failed" not in hv.sh(f"qemu-io -c 'read -P 1 0 8M' {layer}")
    if layer.endswith(".two"):
        assert hv.sh("ls /srv/labsnap").split() == ["disk.one", "disk.qcow2", "disk.two"]
        assert hv.sh(f"stat -c %a {layer}").strip() == "640"
    assert names(hv) == ["one", "two"]
    assert hv.virsh("snapshot-current", box, "--name").strip() == "two"
    hv.virsh("start", box)  # it runs with what it has


def test_external_ones_are_merged_when_deleted(hv, box):
    for name in ("one", "two"):
        hv.call("virt.snapshot", box, name, disk_only=True)
    hv.sh("qemu-io -c 'write -P 5 0 8M' /srv/labsnap/disk.two")
    assert list(hv.call("virt.delete_snapshots", box, all=True)["deleted"]) == ["two", "one"]
    assert hv.virsh("domblklist", box).split() == ["vda", DISK]
    assert hv.sh("ls /srv/labsnap").split() == ["disk.qcow2"]
    assert holds(hv, 5)


def test_refusals(hv, box):
    assert "no guest 'nosuch'" in hv.refuses("virt.snapshot", "nosuch")
    assert "invalid name of a snapshot" in hv.refuses("virt.snapshot", box, box.upper())
    assert "has no snapshots" in hv.refuses("virt.revert_snapshot", box)
