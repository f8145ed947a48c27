"""One operation at a time on a guest of a host, and concurrent changes of its disks."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from saltvirt import errors
from saltvirt.host.domain import guest_lock
from saltvirt.host.storage import unchanged_disks
from saltvirt.system import file_lock, file_probe

LIBRARY = Path(__file__).resolve().parents[4] / "_utils"
HOLD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from saltvirt.host.domain import guest_lock
with guest_lock.acquire(sys.argv[2], "virt.clone", "web1"):
    print("held", flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def another_process(folder):
    argv = [sys.executable, "-c", HOLD, str(LIBRARY), str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        try:
            yield other
        finally:
            other.kill()


def test_who_waits_is_told_who_has_it_and_a_killed_one_has_it_no_more(tmp_path):
    with another_process(tmp_path) as other:
        began = time.monotonic()
        said = rf"web1: another operation .* virt\.clone, process {other.pid}, since 20.* UTC"
        with (
            pytest.raises(errors.OperationFailed, match=said),
            guest_lock.acquire(tmp_path, "virt.start", "web1", wait_s=0.3),
        ):
            pass
        assert 0.3 <= time.monotonic() - began < 60
        with guest_lock.acquire(tmp_path, "virt.start", "web2", wait_s=0):
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
        with guest_lock.acquire(tmp_path, "virt.start", "web1", wait_s=0):
            pass
    assert os.listdir(tmp_path) == []


def test_within_an_operation_the_same_thread_has_it_already(tmp_path):
    with (
        guest_lock.acquire(tmp_path, "virt.rename", "web1", "web2", wait_s=0),
        guest_lock.acquire(tmp_path, "seed.apply", "web2", wait_s=0),
    ):
        refused = []

        def other():
            try:
                with guest_lock.acquire(tmp_path, "virt.start", "web2", wait_s=0):
                    pass
            except errors.OperationFailed as exc:
                refused.append(str(exc))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert refused


def test_who_is_at_work_is_told_of_held_locks_alone(tmp_path):
    assert guest_lock.owners(tmp_path / "none") == {}
    (tmp_path / "left.lock").write_text("virt.init, process 7, since yesterday")
    with guest_lock.acquire(tmp_path, "virt.clone", "web1", "a/b"):
        found = guest_lock.owners(tmp_path)
        assert sorted(found) == ["a/b", "web1"]
        assert found["web1"].startswith(f"virt.clone, process {os.getpid()}, since 20")
    with open(tmp_path / "left.lock", "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate()
        assert guest_lock.owners(tmp_path) == {"left": "an operation that has just started"}


def test_a_lock_that_its_holder_has_just_removed_is_taken_anew(tmp_path, monkeypatch):
    """It was opened before its holder was done, and locked after: nobody else would see it."""
    path = tmp_path / "web1.lock"
    locked = []

    def late(file, how):
        fcntl.flock(file, how)
        if not locked:
            path.unlink()
        locked.append(how)

    names = {"LOCK_EX": fcntl.LOCK_EX, "LOCK_NB": fcntl.LOCK_NB, "flock": late}
    monkeypatch.setattr(file_lock, "fcntl", SimpleNamespace(**names))
    with guest_lock.acquire(tmp_path, "virt.start", "web1", wait_s=30):
        assert len(locked) == 2
        assert "virt.start, process" in path.read_text()
        with path.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("name", ["a/../b", "..", "ü" * 150, "half \udc80"])
def test_any_name_that_libvirt_takes_is_a_file_of_the_folder(tmp_path, name):
    with guest_lock.acquire(tmp_path / "locks", "virt.start", name):
        assert len(os.listdir(tmp_path / "locks")) == 1
    assert os.listdir(tmp_path) == ["locks"]


def qemu_io(path, command, *more):
    argv = ["qemu-io", "-f", "raw", *more, "-c", command, str(path)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "web1_vda.raw"
    path.write_bytes(bytes(2**20))
    return path


def test_qemu_cannot_write_to_a_disk_that_is_copied_and_another_may_read_it(disk):
    with unchanged_disks.UnchangedDisks("web1", [disk]) as unchanged:
        refused = qemu_io(disk, "write 0 4k")
        assert refused.returncode != 0
        assert 'Failed to get "write" lock' in refused.stderr
        assert qemu_io(disk, "read 0 4k", "-r").returncode == 0
        with unchanged_disks.UnchangedDisks("web1", [disk]):
            pass
        unchanged.check()
    assert qemu_io(disk, "write 0 4k").returncode == 0


def test_what_is_written_to_a_device_that_is_copied_is_seen(disk):
    """No lock of ours keeps a QEMU of libvirt's from a device."""
    if os.geteuid() != 0:
        pytest.skip("a loop device needs root")
    made = subprocess.run(
        ["losetup", "--find", "--show", disk], check=True, capture_output=True, text=True
    )
    device = made.stdout.strip()
    try:
        with unchanged_disks.UnchangedDisks("web1", [device]) as unchanged:
            unchanged.check()
            with open(device, "wb") as file:
                before = unchanged_disks._write_state(file.fileno())
                file.write(b"new")
                file.flush()
                os.fsync(file.fileno())
                after = unchanged_disks._write_state(file.fileno())
            writes, sectors = (int(b) - int(a) for a, b in zip(before, after, strict=True))
            assert writes and sectors == 8, "a page is 4 KiB"
            with pytest.raises(errors.OperationFailed, match=f"{device} of web1 was written to"):
                unchanged.check()
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def test_where_it_cannot_be_told_who_writes_nothing_is_copied(disk, monkeypatch):
    unknown = (False, "Input/output error"), os.open(disk, os.O_RDONLY)
    monkeypatch.setattr(unchanged_disks.bounded_io, "lock_against_write", lambda path: unknown)
    with (
        pytest.raises(errors.OperationFailed, match=f"cannot lock {disk}: Input/output error"),
        unchanged_disks.UnchangedDisks("web1", [disk]),
    ):
        pass
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(unknown[1])


def test_a_disk_that_qemu_writes_to_is_not_copied(disk):
    argv = ["qemu-io", "-f", "raw", str(disk)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        writer.stdin.write("write 0 4k\n")
        writer.stdin.flush()
        assert "wrote" in writer.stdout.readline() + writer.stdout.readline()
        with pytest.raises(errors.OperationFailed, match=r"web1_vda.raw of web1 is open"):
            unchanged_disks.UnchangedDisks("web1", [disk]).__enter__()
        writer.communicate("quit\n")
    with unchanged_disks.UnchangedDisks("web1", [disk]):
        pass


def test_what_was_written_without_a_lock_is_seen(disk):
    with unchanged_disks.UnchangedDisks("web1", [disk]) as unchanged:
        unchanged.check()
        with open(disk, "r+b") as file:
            file.write(b"torn")
        with pytest.raises(errors.OperationFailed, match="was written to during the copy"):
            unchanged.check()


def test_a_disk_that_is_not_there_is_said(tmp_path):
    with pytest.raises(errors.OperationFailed, match=r"cannot read .*gone: No such file"):
        unchanged_disks.UnchangedDisks("web1", [tmp_path / "gone"]).__enter__()


def test_of_several_disks_none_stays_held_when_one_cannot_be(disk, tmp_path):
    both = unchanged_disks.UnchangedDisks("web1", [disk, tmp_path / "gone"])
    with pytest.raises(errors.OperationFailed, match="cannot read"):
        both.__enter__()
    assert qemu_io(disk, "write 0 4k").returncode == 0


def test_what_goes_wrong_meanwhile_is_said(disk):
    with pytest.raises(ValueError, match="no room"), unchanged_disks.UnchangedDisks("web1", [disk]):
        raise ValueError("no room")


@contextlib.contextmanager
def locked(disk, byte):
    """The byte is held by one who bears nobody beside him."""
    with open(disk, "r+b") as file:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, file_probe.flock(fcntl.F_WRLCK, byte))
        yield


def test_a_disk_that_another_locks_for_himself_is_neither_copied_nor_deleted(disk):
    with locked(disk, file_probe.UNSHARED + 1):
        with pytest.raises(errors.OperationFailed, match=r"web1_vda.raw of web1 is open"):
            unchanged_disks.UnchangedDisks("web1", [disk]).__enter__()
        with unchanged_disks.prevent_open(str(disk)) as used:
            assert used
    with unchanged_disks.prevent_open(str(disk)) as used:
        assert not used


@pytest.mark.parametrize("more", [["-r"], []], ids=["reads", "writes"])
def test_a_disk_that_any_qemu_has_open_is_said_to_be(disk, more):
    argv = ["qemu-io", "-f", "raw", *more, str(disk)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as qemu:
        qemu.stdin.write("read 0 4k\n")
        qemu.stdin.flush()
        assert "read" in qemu.stdout.readline()
        with unchanged_disks.prevent_open(str(disk)) as used:
            assert used
        qemu.communicate("quit\n")
    with unchanged_disks.prevent_open(str(disk)) as used:
        assert not used


def test_nobody_opens_what_is_about_to_be_deleted(disk):
    """Not to read either, and by no other name; afterwards anybody."""
    other = disk.with_name("other")
    os.link(disk, other)
    with unchanged_disks.prevent_open(str(disk)) as used:
        assert not used
        for path in (disk, other):
            for command, *more in (("read 0 4k", "-r"), ("write 0 4k",)):
                assert qemu_io(path, command, *more).returncode != 0
    assert qemu_io(other, "write 0 4k").returncode == 0


def test_what_is_no_file_is_open_to_nobody(tmp_path):
    for path in (tmp_path, tmp_path / "gone"):
        with unchanged_disks.prevent_open(str(path)) as used:
            assert used is False
