"""A full file system below the files of a verb: one line names the location, and nothing is changed
or left."""

import os
import subprocess
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.provision import disk_journal
from saltvirt.host.snapshot import layers
from tests.functional import asking
from tests.functional.host.provision.test_init import MIB, host, image  # noqa: F401

DISK = {"name": "system", "size": 1, "format": "raw"}


@pytest.fixture
def small(tmp_path):
    """A file system of a few files and 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=12", "small", str(folder)]
    if os.geteuid() or subprocess.run(argv, check=False, capture_output=True).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder):
    """Takes all of its files."""
    made = []
    try:
        for number in range(100):
            made.append(folder / f"filler{number}")
            made[-1].touch()
    except OSError:
        made.pop()
    return made


@pytest.fixture
def guest(host):  # noqa: F811
    host.init("g1", disks=[DISK])
    return host


def state(guest):
    return guest.conn.lookupByName("g1").XMLDesc(), sorted(os.listdir(guest.images))


def refused(guest, verb, *args, **kwargs):
    """What is said when the verb fails; that nothing was changed."""
    before = state(guest)
    with pytest.raises(errors.VirtError) as caught:
        guest.modules[f"virt.{verb}"](*args, **kwargs)
    assert state(guest) == before
    assert asking.answer(guest.modules, "virt.leftovers")["orphaned_disks"] == {}
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, OSError), repr(caught.value)
    return str(caught.value)


def test_the_disk_of_an_update(guest, small):
    data = {"name": "data", "size": 4, "format": "raw", "pool": str(small), "sparse_volume": False}
    disks = [{"name": "system"}, data]
    said = refused(guest, "update", "g1", disks=disks, overcommit=True)
    assert f"{small}/g1_data.raw" in said
    fill(small)
    said = refused(guest, "update", "g1", disks=disks, overcommit=True)
    assert said == f"cannot create {small}/g1_data.raw: No space left on device"
    assert not [name for name in os.listdir(small) if "g1" in name]


def test_the_note_of_an_update_and_the_lock_of_a_guest(guest, small, monkeypatch, tmp_path):
    disks = [{"name": "system"}, {"name": "data", "size": 1, "format": "raw"}]
    filler = fill(small)
    monkeypatch.setattr(disk_journal, "FOLDER", str(small))
    said = refused(guest, "update", "g1", disks=disks)
    assert said == f"cannot write {small}/g1.json: No space left on device"
    monkeypatch.undo()
    for path in filler:
        path.unlink()
    (tmp_path / "lock" / "guests").rename(tmp_path / "away")
    (small / "guests").mkdir(mode=0o700)
    fill(small)
    subprocess.run(["mount", "--bind", small, tmp_path / "lock"], check=True)
    try:
        said = refused(guest, "update", "g1", mem=96)
        assert said.startswith("cannot lock g1: ")
        assert said.endswith("No space left on device")
    finally:
        subprocess.run(["umount", tmp_path / "lock"], check=True)


def test_the_second_name_of_a_rename(host, small):  # noqa: F811
    host.init("g1", disks=[{**DISK, "pool": str(small)}])
    fill(small)
    before = sorted(os.listdir(small))
    said = refused(host, "rename", "g1", "g2")
    old, new = small / "g1_system.raw", small / "g2_system.raw"
    assert said == f"cannot rename {old} to {new}: No space left on device"
    assert sorted(os.listdir(small)) == before
    assert old.stat().st_size == MIB


def test_a_layer_that_begins_anew(small):
    base, layer = small / "base.raw", small / "layer.qcow2"
    base.write_bytes(bytes(4096))
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", layer]
    subprocess.run(argv, check=True)
    before = layer.read_bytes()
    fill(small)
    there = sorted(os.listdir(small))
    text = (
        "<domainsnapshot><disks><disk name='vda' snapshot='external'>"
        f"<source file='{layer}'/></disk></disks></domainsnapshot>"
    )
    snapshot = SimpleNamespace(getXMLDesc=lambda _flags: text)
    domain = SimpleNamespace(isActive=lambda: False)
    with pytest.raises(errors.OperationFailed, match=r"cannot reset .*: No space left"):
        layers.revert(None, domain, snapshot, [])
    assert layer.read_bytes() == before
    assert sorted(os.listdir(small)) == there
