"""Attacks of a compromised hypervisor on the machine of a target, through its answers and its
exported disks. The real program reads from a malicious server."""

import os
import time
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from saltvirt import errors
from saltvirt.backup.model.answers import ServedDisk, Serving
from saltvirt.backup.target import pull
from tests.functional import hostile_nbd
from tests.functional.backed_up import MIB, UUID, XML
from tests.functional.pulled import HAS_LIBNBD, HOST, SIZE, Pulled

pytestmark = pytest.mark.skipif(not HAS_LIBNBD, reason="no libnbd")


@pytest.fixture
def guest(tmp_path):
    """With one backup."""
    found = Pulled(tmp_path, tmp_path / "target")
    found.write(MIB, 300_000, byte=1)
    found.back_up()
    found.write(MIB, 300_000, byte=2)
    return found


def everything(guest):
    """Each file of the target's folder and of the folder around it."""
    root = Path(guest.target.folder.root).parent
    kinds = (".qcow2", ".pieces", ".json", ".xml")
    return {path: path.read_bytes() for path in root.rglob("*") if path.suffix in kinds}


def serving(port, authority, **of_disk):
    given = {"target": "vda", "size_bytes": SIZE, "source": "file /srv/web1.qcow2",
             "export": "vda", "reason": "a full backup was requested", **of_disk}  # fmt: skip
    return Serving(UUID, HOST, port, "stopped", XML, (ServedDisk(**given),), authority)


LIES = {
    hostile_nbd.Silent: "the host did not answer for",
    hostile_nbd.Gone: "cannot connect to export vda",
    hostile_nbd.Noise: "cannot connect to export vda",
    hostile_nbd.Larger: "bytes instead of",
    hostile_nbd.Smaller: "now has 512 bytes",
    hostile_nbd.NoLength: "does not report the block status",
    hostile_nbd.NoParts: "does not report the block status",
    hostile_nbd.ForgetsParts: "does not report the block status",
    hostile_nbd.EndsParts: "does not report the block status",
    hostile_nbd.Hangs: "the host did not answer for",
    hostile_nbd.TooLong: "no longer exports the disk",
    hostile_nbd.TooShort: "no longer exports the disk",
    hostile_nbd.Endless: "no longer exports the disk",
    hostile_nbd.OtherKind: "no longer exports the disk",
    hostile_nbd.Breaks: "no longer exports the disk",
}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_server_that_lies_makes_no_backup_harms_none_and_is_left_in_time(guest, lie, monkeypatch):
    monkeypatch.setattr(pull, "SILENT_S", 5)
    before, planned = everything(guest), guest.plan()
    server = lie(bytes(guest.now), guest.reader.authority)
    began = time.monotonic()
    try:
        with pytest.raises(errors.VirtError, match=LIES[lie]) as failed:
            guest.receive(planned.backup_id, serving(server.port, server.pair.authority))
    finally:
        server.end()
    assert "\n" not in str(failed.value)
    assert time.monotonic() - began < 60
    assert everything(guest) == before
    assert not list(Path(guest.target.folder.root, UUID).glob(".new-*"))
    # nobody writes any more; the folder of one that was killed is taken away by the next, and
    # others' reads of this machine may begin meanwhile
    left = [str(one) for one in Path("/run/salt-virt/backups").glob("pull-*/nbd")]
    sockets = Path("/proc/net/unix")
    assert hostile_nbd.waited(lambda: not any(one in sockets.read_text() for one in left), 60)


def test_the_server_that_does_not_lie_is_read(guest):
    """Else the lies above would prove nothing."""
    server = hostile_nbd.Honest(bytes(guest.now), guest.reader.authority)
    try:
        shown = serving(server.port, server.pair.authority)
        made = guest.receive(guest.plan().backup_id, shown)
    finally:
        server.end()
    guest.images[made.backup_id] = bytes(guest.now)
    stock = guest.target.catalog(UUID)
    assert len(stock.good_ids) == 2 and stock.last.backup_id == made.backup_id


def test_what_reaches_past_the_end_is_cut(guest):
    server = hostile_nbd.PastTheEnd(bytes(guest.now), guest.reader.authority)
    try:
        made = guest.receive(guest.plan().backup_id, serving(server.port, server.pair.authority))
    finally:
        server.end()
    assert made.moved_bytes == SIZE


NAMES = {
    "another backup's disk": {"target": "../{first}/vda"},
    "a path": {"target": "/etc/x"},
    "outside": {"target": "../../../elsewhere"},
    "no name": {"target": ""},
    "a link's": {"target": "."},
    "a line": {"target": "vda\nvdb"},
    "NUL": {"target": "vda\0"},
    "on a path": {"parent": "../../../etc", "reason": None},
    "on what comes later": {"parent": "999999-20991123T155220Z-00000000", "reason": None},
    "on what is not there": {"parent": "000000-20261123T155220Z-00000000", "reason": None},
    "of no size": {"size_bytes": 0},
    "of a giant size": {"size_bytes": 2**62},
    "an option of a tool": {"export": "-o"},
    "an export of a line": {"export": "x\ny"},
    "an export that is long": {"export": "x" * 5000},
    "a context that is none": {"contexts": ("a b",)},
    "many contexts": {"contexts": ("qemu:dirty-bitmap:x",) * 1000},
    "a checkpoint of a path": {"checkpoint": "../x"},
    "a source of lines": {"source": "a\nb"},
}


@pytest.mark.parametrize("how", NAMES)
def test_what_it_says_of_a_disk_names_no_file_here(guest, how, tmp_path):
    """vda.qcow2 of another backup was overwritten by the first of these."""
    [first] = guest.target.catalog(UUID).backups
    told = {key: value.format(first=first) if isinstance(value, str) else value
            for key, value in NAMES[how].items()}  # fmt: skip
    before, planned = everything(guest), guest.plan()
    with guest.shown() as (port, authority), pytest.raises(errors.VirtError) as failed:
        guest.receive(planned.backup_id, serving(port, authority, **told))
    assert "\n" not in str(failed.value)
    assert everything(guest) == before
    assert os.listdir(Path(guest.target.folder.root, UUID)) and not list(
        Path(guest.target.folder.root, UUID).glob(".new-*")
    )


def test_two_disks_of_one_file(guest):
    before, planned = everything(guest), guest.plan()
    with (
        guest.shown() as (port, authority),
        pytest.raises(errors.VirtError, match="duplicate disk"),
    ):
        one = serving(port, authority)
        disks = (*one.disks, *serving(port, authority, target="VDA").disks)
        told = Serving(UUID, HOST, port, "stopped", XML, disks, authority)
        guest.receive(planned.backup_id, told)
    assert everything(guest) == before
