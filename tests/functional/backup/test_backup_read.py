"""The program that reads a guest's disks, run in this process, with the distribution's libnbd and
QEMU's tools. test_backup_hostile.py runs it as a process."""

import io
import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("cryptography")

from saltvirt import errors
from saltvirt.backup.model.answers import ServedDisk, Serving
from saltvirt.backup.target import daemon, exports, pull, receive, upkeep
from tests.clock import until
from tests.functional import hostile_nbd
from tests.functional.backed_up import MIB, UUID, XML
from tests.functional.backup.test_backup_compressed import restored
from tests.functional.pulled import HAS_LIBNBD, HOST, Pulled, libnbd

pytestmark = pytest.mark.skipif(not HAS_LIBNBD, reason="no libnbd")


class Program:
    """It, for receive._run. alarms: within how many seconds it has to go on, each time it said
    so."""

    def __init__(self, monkeypatch):
        self.alarms, self.said = [], []
        self._patch = monkeypatch
        monkeypatch.setattr(pull.signal, "alarm", self.alarms.append)
        monkeypatch.setattr(
            pull.detached, "send", lambda data: self.said.append(json.loads(json.dumps(data)))
        )

    def main(self, told):
        self._patch.setattr(sys, "stdin", io.StringIO(told))
        mask = os.umask(0o022)
        try:
            code = pull.main([])
        finally:
            assert os.umask(mask) == 0o077
        assert code == int("error" in self.said[-1])
        return self.said[-1]

    def run(self, _argv, job, tell):
        last = self.main(json.dumps(job.to_answer()))
        if "error" in last:
            raise errors.OperationFailed(last["error"])
        return last["done"]


@pytest.fixture
def program(monkeypatch):
    binding = libnbd()
    if binding is None:
        pytest.skip("the distribution's Python is another")
    monkeypatch.setattr(exports, "nbd", binding)
    found = Program(monkeypatch)
    monkeypatch.setattr(receive, "_run", found.run)
    return found


@pytest.fixture
def guest(tmp_path, program):
    found = Pulled(tmp_path, tmp_path / "target")
    found.write(MIB, 300_000, byte=1)
    return found


def served(guest, server):
    disk = ServedDisk(
        "vda", guest.size, "file /srv/web1.qcow2", "vda", reason="a full backup was requested"
    )
    shown = Serving(UUID, HOST, server.port, "stopped", XML, (disk,), server.pair.authority)
    try:
        return guest.receive(guest.plan().backup_id, shown)
    finally:
        server.end()


def test_each_wait_for_the_host_has_an_end_and_no_work_of_ours_has(guest, program, tmp_path):
    """A whole one, an increment, and one that is compressed."""
    made = [guest.back_up()[0]]
    assert program.alarms[:3] == [pull.SILENT_S, pull.SILENT_S, 0]  # asked, told, made here
    assert set(program.alarms[3:-1]) == {pull.SILENT_S}
    assert program.alarms[-1] == 0  # what is checked here takes as long as it takes
    guest.write(MIB + 65536, 65536, byte=2)
    guest.write(5 * MIB, os.urandom(MIB))
    made.append(guest.back_up()[0])
    guest.write(3 * MIB, 65536, byte=3)
    made.append(guest.back_up(compress="zstd")[0])
    for ident in made:
        restored(guest, ident, tmp_path / "raw")
        assert (tmp_path / "raw").read_bytes() == guest.images[ident]
    assert guest.target.catalog(UUID).good_ids == made
    now = "2026-11-26T16:00:00Z"
    found = upkeep.verify_all(guest.target, None, upkeep.ALL, None, now, lambda *_: None)
    assert [one.problem for one in found.backups] == [None] * 3
    [done] = program.said[-1]["done"]
    assert done["moved_bytes"] == 65536  # of the increment


LISTENS = """
import select, socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.bind(sys.argv[1])
    door.listen()
    select.select([door], [], [])
sys.exit("there is no such disk")
"""


def test_a_storage_daemon_that_cannot_open_a_disk_shows_nothing(tmp_path):
    """It listens before it opens the disks, and lets nobody in before it has opened them."""
    path = str(tmp_path / "nbd")
    server = daemon._start([sys.executable, "-c", LISTENS, path])
    with pytest.raises(errors.OperationFailed, match="cannot be exported: there is no such disk"):
        daemon._wait(server, path)


LIES = {
    hostile_nbd.Gone: "cannot connect to export vda on 127.0.0.1:",
    hostile_nbd.Larger: "vda now has 4611686018427387904 bytes instead of",
    hostile_nbd.ForgetsParts: "does not report the block status at offset 0: nbd_block_stat",
    hostile_nbd.Breaks: "the host no longer exports the disk: nbd_pread",
}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_whose_fault_it_is_that_there_is_no_backup_is_said(tmp_path, program, lie):
    """Of a disk of more pieces than are read ahead."""
    guest = Pulled(tmp_path, tmp_path / "target", size=(pull._AHEAD + 4) * MIB)
    with pytest.raises(errors.VirtError, match=LIES[lie]):
        served(guest, lie(os.urandom(MIB) * (guest.size // MIB), guest.reader.authority))
    assert not guest.target.catalog(UUID).backups


def test_a_sector_of_which_a_part_is_data_is_data(tmp_path, program):
    """A host tells so of a file that ends within a sector."""
    guest = Pulled(tmp_path, tmp_path / "target")
    image = os.urandom(100).ljust(guest.size, b"\0")
    made = served(guest, hostile_nbd.HalfSectors(image, guest.reader.authority))
    assert made.moved_bytes == 512
    restored(guest, made.backup_id, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == image


@pytest.mark.parametrize("compress", [None, "zstd"])
def test_a_raw_disk_that_ends_within_a_sector_is_backed_up(tmp_path, program, compress):
    guest = Pulled(tmp_path, tmp_path / "target", size=1024, kind="raw")
    guest.disk.write_bytes(b"x" * 1000)
    ident, _ = guest.back_up(compress=compress)
    restored(guest, ident, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == (b"x" * 1000).ljust(1024, b"\0")


def test_a_sparse_disk_that_the_guest_overwrites_meanwhile_is_backed_up(tmp_path, program):
    """QEMU tells of the whole clusters that it has copied as data, also where there was none."""
    guest = Pulled(tmp_path, tmp_path / "target", size=(pull._AHEAD + 4) * MIB)
    image = os.urandom(MIB) * (guest.size // MIB)
    made = served(guest, hostile_nbd.WrittenMeanwhile(image, guest.reader.authority))
    assert made.moved_bytes == guest.size
    restored(guest, made.backup_id, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == image
    told = [one for one in program.said if "total_bytes" in one]
    assert all(one["done_bytes"] <= one["total_bytes"] for one in told)


def test_a_device_needs_as_much_room_as_its_last_backup(tmp_path, program, monkeypatch):
    """All of it is data for the host; what is zeros is found when it is read."""
    guest = Pulled(tmp_path, tmp_path / "target", size=8 * MIB, kind="raw")
    image = os.urandom(MIB) + bytes(7 * MIB)
    server = hostile_nbd.Honest(image, guest.reader.authority)
    monkeypatch.setattr(server, "status", lambda _offset, length: [(length, 0)], raising=False)
    free = pull.RESERVED_BYTES + 4 * MIB
    vfs = SimpleNamespace(f_bavail=free // 4096, f_frsize=4096)
    monkeypatch.setattr(pull.os, "statvfs", lambda _folder: vfs)
    first = served(guest, server)
    assert first.stored_bytes < 2 * MIB
    vfs.f_bavail = (pull.RESERVED_BYTES + MIB // 2) // 4096
    again = hostile_nbd.Honest(image, guest.reader.authority)
    monkeypatch.setattr(again, "status", lambda _offset, length: [(length, 0)], raising=False)
    with pytest.raises(errors.VirtError, match=r"free, 1.* MiB are needed"):
        served(guest, again)


def test_storage_that_hangs_is_named_and_not_the_host(program, monkeypatch):
    ended = []
    monkeypatch.setattr(pull, "_REPORT_S", 0.01)
    monkeypatch.setattr(pull.os, "_exit", ended.append)
    copy = pull._DiskCopy([None], [None], overlay=False)
    with copy._track_write(), pull._storage_watchdog(copy, 0):
        until(lambda: ended, "it ends")
    assert program.said[0]["error"].startswith("the target's storage did not answer for")


def test_of_a_disk_of_many_pieces_each_is_there(tmp_path, program):
    guest = Pulled(tmp_path, tmp_path / "target", size=(pull._AHEAD + 4) * MIB)
    image = b"".join(bytes([number]) * MIB for number in range(guest.size // MIB))
    made = served(guest, hostile_nbd.Honest(image, guest.reader.authority))
    assert made.moved_bytes == guest.size
    restored(guest, made.backup_id, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == image


def test_a_host_that_does_not_show_the_bitmap_makes_no_backup(guest):
    with guest.shown() as (port, authority):
        disk = ServedDisk("vda", guest.size, "/a", "vda", ("qemu:dirty-bitmap:x",), reason="asked")
        shown = Serving(UUID, HOST, port, "stopped", XML, (disk,), authority)
        with pytest.raises(errors.VirtError, match="not export qemu:dirty-bitmap:x of vda"):
            guest.receive(guest.plan().backup_id, shown)
    assert not guest.target.catalog(UUID).backups


WRITERS = {
    "it does not begin": ("exit 1", "qemu-nbd does not start"),
    "it fails at the end": ('{real} "$@"; exit 1', "cannot write .*vda.qcow2: qemu-nbd failed"),
    "it cannot write": ('ulimit -f 300; exec {real} "$@"', "cannot write .*vda.qcow2: nbd_"),
}


@pytest.mark.parametrize("how", WRITERS)
def test_what_cannot_be_written_is_no_backup(guest, tmp_path, monkeypatch, how):
    script, words = WRITERS[how]
    guest.write(2 * MIB, os.urandom(MIB))
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin/qemu-nbd"
    tool.write_text(f"#!/bin/bash\n{script.format(real=shutil.which('qemu-nbd'))}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    with pytest.raises(errors.VirtError, match=words) as failed:
        guest.back_up()
    assert "\n" not in str(failed.value)
    assert not guest.target.catalog(UUID).backups
    assert not list(Path(guest.target.folder.root, UUID).glob(".new-*"))


def test_without_room_nothing_is_read(guest, program, monkeypatch):
    monkeypatch.setattr(pull, "RESERVED_BYTES", 2**60)
    with pytest.raises(errors.VirtError, match=r"the target has .* free, 320 KiB are needed"):
        guest.back_up()
    assert program.alarms == [pull.SILENT_S, pull.SILENT_S]


def test_what_the_system_refuses_is_said(program, tmp_path):
    """The target is gone by now."""
    job = pull.PullJob(f"{tmp_path}/gone", HOST, 1, "", ())
    said = program.main(json.dumps(job.to_answer()))
    assert said == {"error": f"[Errno 2] No such file or directory: '{tmp_path}/gone'"}


def test_without_the_binding_it_is_said_what_to_install(program, monkeypatch):
    monkeypatch.setattr(exports, "nbd", None)
    job = pull.PullJob("/", HOST, 1, "", ())
    words = "the Python binding of libnbd is missing: install python3-libnbd"
    assert program.main(json.dumps(job.to_answer())) == {"error": words}
