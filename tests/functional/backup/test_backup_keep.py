"""Verification and removal of backups: the remaining ones are complete, wherever the process is
killed."""

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from saltvirt import errors
from saltvirt.backup.model import chains, checksum_blocks
from saltvirt.backup.model.answers import GuestInspection, InspectedDisk
from saltvirt.backup.model.retention import READ, Retention
from saltvirt.backup.model.verification import Verification
from saltvirt.backup.target import prune, reader, target, upkeep, verify
from saltvirt.backup.target.safe_folder import Busy
from tests.functional.backed_up import (
    SIZE,
    UUID,
    XML,
    Guest,
    assert_whole,
    disk,
    qemu_img,
    qemu_io,
    told,
)
from tests.functional.steps import killed_at_every_step

WHEN = "2026-11-23T16:30:00Z"
RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture
def guest(tmp_path):
    return Guest(tmp_path / "target")


@pytest.fixture
def chain(guest):
    """Three backups, each on the one before, and one by itself."""
    made = [guest.back_up()]
    for number, byte in ((3, 1), (63, 2)):
        guest.write(number, byte)
        made.append(guest.back_up())
    return guest, [*made, guest.back_up(whole=True)]


def verified(guest, made, tell=lambda done, total: None):
    return verify.backup(guest.target, UUID, made, WHEN, tell)


def path(guest, made, name="vda.qcow2"):
    return Path(guest.target.folder.root, UUID, made, name)


# verify


def test_what_is_whole_is_said_to_be_beside_the_record(chain):
    guest, made = chain
    before = [path(guest, one, "record.json").read_bytes() for one in made]
    shown = []
    for one in made:
        found = verified(guest, one, lambda done, total: shown.append(done / total))
        assert (
            found
            == Verification(WHEN, ("vda",))
            == guest.target.catalog(UUID).backups[one].verification
        )
    assert shown[0] > 0 and shown[-1] == 1
    assert guest.target.catalog(UUID).good_ids == made
    assert [path(guest, one, "record.json").read_bytes() for one in made] == before


def test_one_changed_byte_of_the_guests_is_seen_and_makes_the_next_a_whole_one(chain):
    guest, made = chain
    guest.target.remove(UUID, made[3])
    # a byte of the cluster that the increment has, in its own file
    data = bytearray(path(guest, made[2]).read_bytes())
    at = data.index(b"\2" * 65536) + 12345
    data[at] ^= 1
    path(guest, made[2]).write_bytes(data)
    assert guest.target.catalog(UUID).good_ids == made[:3]  # nobody has looked
    found = verified(guest, made[2])
    assert found.broken_disks == {
        "vda": "the 65536 bytes at offset 4128768 differ from what was backed up"
    }
    stock = guest.target.catalog(UUID)
    assert stock.good_ids == made[:2]
    seen = InspectedDisk("vda", SIZE, "file /srv/web1.qcow2",
                           bitmaps={chains.checkpoint(made[2]): chains.GOOD})  # fmt: skip
    one = GuestInspection(UUID, True, (seen,), (chains.checkpoint(made[2]),))
    [plan] = chains.plan(one, "hv1", stock)
    assert plan.reason.startswith(
        "the last backup of the disk is not good: the 65536 bytes at offset 4128768"
    )
    # it was the disk below, and is well again
    data[at] ^= 1
    path(guest, made[2]).write_bytes(data)
    assert verified(guest, made[2]).is_good
    assert guest.target.catalog(UUID).good_ids == made[:3]


def test_what_is_there_where_the_guest_had_zeros_is_seen(guest):
    """Far behind the first byte of a long piece."""
    made, size = guest.new_ident(), reader.MAX_BYTES + SIZE
    with guest.target.create(UUID, made) as new:
        qemu_img("create", "-q", "-f", "qcow2", new.disk_path("vda"), str(size))
        with new.checksum_writer("vda") as file:
            file.add(checksum_blocks.zeros(0, size))
        qemu_io(new.disk_path("vda"), f"write -q -P 1 {size - 1} 1")
        taken = dataclasses.replace(disk(made, None, file.sha256), size_bytes=size)
        new.finish(told([taken]), XML)
    found = verified(guest, made)
    differs = f"the {size} bytes at offset 0 differ from what was backed up"
    assert found.broken_disks == {"vda": differs}


def test_one_that_cannot_be_read_back_now_is_named_and_hinders_no_other(chain, tmp_path):
    """Somebody else reads the guest's back; another guest's are."""
    guest, made = chain
    another = UUID.replace("b7", "a7")
    with guest.target.create(another, made[3]) as new:
        shutil.copy(path(guest, made[3]), new.disk_path("vda"))
        shutil.copy(path(guest, made[3], "vda.pieces"), new.path)
        [record_] = [one for one in guest.target.catalog(UUID).records if one.backup_id == made[3]]
        new.finish(record_, XML)
    with guest.target.folder.lock(UUID, verify.VERIFYING):
        found = upkeep.verify_all(guest.target, None, "latest", None, WHEN, lambda *_: None).backups
    first, second = found
    assert (first.uuid, first.error, first.problem) == (another, None, None)
    assert first.verification.is_good
    assert second.uuid == UUID and second.verification is None
    assert second.error == f"{guest.target.folder.root}/{UUID} is locked by another process"


def test_one_that_a_prune_removes_before_it_is_read_back_is_no_trouble(chain):
    guest, made = chain

    def prunes(_guest, ident, done, _total):
        if ident == made[0]:
            prune.prune_guest(guest.target, UUID, Retention(last=1))

    found = upkeep.verify_all(guest.target, None, upkeep.ALL, None, WHEN, prunes).backups
    assert [(one.backup_id, one.error, one.problem) for one in found] == [
        (one, None, None) for one in (made[0], made[3])
    ]


def test_what_stands_on_a_broken_one_is_not_good_but_not_itself_broken(chain):
    guest, made = chain
    data = bytearray(path(guest, made[1]).read_bytes())
    data[data.index(b"\1" * 65536)] = 9
    path(guest, made[1]).write_bytes(data)
    assert [verified(guest, one).is_good for one in made] == [True, False, True, True]
    assert guest.target.catalog(UUID).good_ids == [made[0], made[3]]


SPOILED = {
    "more in the overlay": lambda file: qemu_io(file, "write -q -P 7 1048576 65536"),
    "zeros in the overlay": lambda file: qemu_io(file, "write -q -z 1048576 65536"),
    "a table of the file": lambda file: _overwritten(file, 3 * 65536, b"\xff" * 64),
    "its header": lambda file: _overwritten(file, 0, b"\0" * 8),
    "another base": lambda file: _rebased(file, "/etc/passwd"),
    "no base": lambda file: _rebased(file, ""),
    "a snapshot": lambda file: subprocess.run(
        ["qemu-img", "snapshot", "-c", "x", file], check=True
    ),
    "its end": lambda file: os.truncate(file, 3 * 65536),
    "gone": os.unlink,
}


def _overwritten(file, at, data):
    with open(file, "r+b") as out:
        out.seek(at)
        out.write(data)


def _rebased(file, base):
    how = ["-b", base, "-F", "raw"] if base else ["-b", ""]
    subprocess.run(["qemu-img", "rebase", "-q", "-u", "-f", "qcow2", *how, file], check=True)


@pytest.mark.parametrize("name", SPOILED)
def test_whatever_became_of_an_overlay_is_seen(chain, name):
    guest, made = chain
    SPOILED[name](path(guest, made[1]))
    before = guest.target.catalog(UUID).backups[made[1]].lengths
    found = verified(guest, made[1])
    assert list(found.broken_disks) == ["vda"], found
    assert "\n" not in found.broken_disks["vda"]
    assert made[1] not in guest.target.catalog(UUID).good_ids
    assert guest.target.catalog(UUID).backups[made[1]].lengths == before


@pytest.mark.parametrize("name", ["vda.pieces", "domain.xml"])
def test_digests_and_definition_that_changed_are_seen(chain, name):
    guest, made = chain
    data = path(guest, made[3], name).read_bytes()
    path(guest, made[3], name).write_bytes(data.replace(b"0", b"1").replace(b"web1", b"web2"))
    found = verified(guest, made[3])
    assert list(found.broken_disks) == ["" if name == "domain.xml" else "vda"]
    assert made[3] not in guest.target.catalog(UUID).good_ids


def test_one_without_its_definition_is_not_good_but_what_stands_on_its_disks_is(chain):
    """No guest can be made of it; nobody has to read it back to know."""
    guest, made = chain
    os.unlink(path(guest, made[1], "domain.xml"))
    stock = guest.target.catalog(UUID)
    assert stock.good_ids == [made[0], made[2], made[3]]
    assert stock.problem(made[1]) == "domain.xml is missing"
    assert stock.disk_problem(made[1], "vda") is None


def test_a_mark_that_cannot_be_read_is_no_good_one(chain):
    guest, made = chain
    path(guest, made[3], "verified.json").write_text("{")
    assert made[3] not in guest.target.catalog(UUID).good_ids
    assert verified(guest, made[3]).is_good
    assert made[3] in guest.target.catalog(UUID).good_ids


def test_one_whose_mark_cannot_be_read_is_not_removed(chain):
    """Nor what it stands on, or what stands on it: nobody knows that it is not good."""
    guest, made = chain
    path(guest, made[1], "verified.json").write_text("{")
    prune.prune_guest(guest.target, UUID, Retention(last=1))
    assert left(guest) == made
    assert verified(guest, made[1]).is_good
    prune.prune_guest(guest.target, UUID, Retention(last=1))
    assert left(guest) == [made[3]]


def test_one_that_is_gone_or_unreadable_is_not_marked(chain):
    guest, made = chain
    with pytest.raises(errors.NotFound):
        verified(guest, made[3][:-1] + "f")
    path(guest, made[3], "record.json").write_text("{")
    with pytest.raises(errors.BadAnswer):
        verified(guest, made[3])
    assert not path(guest, made[3], "verified.json").exists()


def test_two_do_not_verify_one_guest_at_once(chain):
    guest, made = chain
    with guest.target.folder.lock(UUID, verify.VERIFYING), pytest.raises(Busy):
        verified(guest, made[0])


def test_without_the_tool_nothing_is_marked(chain, monkeypatch):
    guest, made = chain
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(errors.Unsupported, match="is not installed"):
        verified(guest, made[0])
    # it is not told of each backup: none is wrong by it
    with pytest.raises(errors.Unsupported, match="is not installed"):
        upkeep.verify_all(guest.target, None, upkeep.ALL, None, WHEN, lambda *_: None)
    assert not path(guest, made[0], "verified.json").exists()


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv")
@pytest.mark.parametrize(
    ("name", "when", "why"),
    [
        ("qemu-img", "check", "qemu-img was killed"),
        ("qemu-img", "info", "qemu-img was killed"),
        ("qemu-img", "map", "qemu-img was killed"),
        ("qemu-nbd", "--read-only", "qemu-nbd was killed"),
    ],
)
def test_where_a_tool_was_killed_nothing_is_marked(chain, tmp_path, monkeypatch, name, when, why):
    """As where memory is short: nobody knows whether the disk is good, so a prune does not remove
    it as one that is not."""
    guest, made = chain
    tool, real = tmp_path / "bin" / name, shutil.which(name)
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\n[ "$1" = {when} ] && kill -9 $$\nexec {real} "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    found = upkeep.verify_all(guest.target, None, made[1], None, WHEN, lambda *_: None).backups
    assert [(one.verification, one.problem) for one in found] == [(None, None)]
    assert why in found[0].error
    assert guest.target.catalog(UUID).good_ids == made


def failing(tmp_path, monkeypatch, name, script):
    """A tool of QEMU's that fails as the script says, before it is what it is."""
    tool, real = tmp_path / "bin" / name, shutil.which(name)
    tool.parent.mkdir(exist_ok=True)
    tool.write_text(f'#!/bin/sh\n{script}\nexec {real} "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)


FAILS = '[ "$1" = {} ] && echo "Could not open: {}" >&2 && exit 1'
FAILURES = {
    "the storage": ("qemu-img", FAILS.format("check", "Input/output error")),
    "the lock": ("qemu-img", FAILS.format("map", "Failed to get shared lock")),
    "no words": ("qemu-img", '[ "$1" = map ] && exit 1'),
    "a crash": ("qemu-nbd", "kill -SEGV $$"),
    "a shutdown": ("qemu-nbd", "kill -TERM $$"),
    "no memory": ("qemu-nbd", "ulimit -v 20000"),
}  # fmt: skip


@pytest.mark.parametrize("why", FAILURES)
def test_a_failure_of_a_tool_marks_nothing_and_a_prune_removes_nothing(
    chain, tmp_path, monkeypatch, why
):
    guest, made = chain
    with monkeypatch.context() as patched:
        failing(tmp_path, patched, *FAILURES[why])
        found = upkeep.verify_all(
            guest.target, None, upkeep.ALL, None, WHEN, lambda *_: None
        ).backups
    # an overlay has all of it, a whole one no map
    assert all(one.error for one in found[1:3]), found
    assert not [one.problem for one in found if one.problem]
    prune.prune_guest(guest.target, UUID, Retention(last=4))
    assert left(guest) == made == guest.target.catalog(UUID).good_ids


def test_a_cluster_that_cannot_be_decompressed_is_damage(tmp_path):
    """QEMU says no more of it than of storage that fails; the file can be read to its end."""
    guest = Guest(tmp_path / "target")
    guest.now[:] = b"t" * SIZE
    made = guest.back_up(whole=True)
    file, small = path(guest, made), tmp_path / "small.qcow2"
    qemu_img("convert", "-c", "-O", "qcow2", str(file), str(small))
    taken = guest.target.catalog(UUID).backups[made].record
    guest.target.remove(UUID, made)
    with guest.target.create(UUID, made) as new:
        shutil.copy(small, new.disk_path("vda"))
        with new.checksum_writer("vda") as digests:
            for number in range(64):
                digests.add(checksum_blocks.compute(number * 65536, bytes(guest.now[:65536])))
        new.finish(dataclasses.replace(taken, disks=(disk(made, None, digests.sha256),)), XML)
    assert verified(guest, made).is_good
    data = bytearray(file.read_bytes())
    tail = len(bytes(data).rstrip(b"\0"))  # of the last cluster
    data[tail - 40 : tail] = b"\xff" * 40
    file.write_bytes(data)
    assert list(verified(guest, made).broken_disks) == ["vda"]


def test_one_disk_that_cannot_be_read_hides_no_damage_of_another(chain, monkeypatch):
    guest, made = chain
    taken = guest.target.catalog(UUID).backups[made[3]].record
    vdb = dataclasses.replace(taken.disks[0], target="vdb")
    both = guest.new_ident()
    with guest.target.create(UUID, both) as new:
        for target in ("vda", "vdb"):
            shutil.copy(path(guest, made[3]), new.disk_path(target))
            shutil.copy(path(guest, made[3], "vda.pieces"), f"{new.path}/{target}.pieces")
        new.finish(dataclasses.replace(taken, disks=(*taken.disks, vdb)), XML)
    _overwritten(path(guest, both, "vdb.qcow2"), 5 * 65536, b"\xff" * 65536)
    compare, asked = verify._compare, []

    def fails(of, *rest):
        asked.append(of.paths[0])
        if of.paths[0].endswith("vda.qcow2"):
            raise OSError(5, "Input/output error")
        return compare(of, *rest)

    monkeypatch.setattr(verify, "_compare", fails)
    with pytest.raises(reader.TemporaryFailure, match=r"^vda: .*Input/output error"):
        verified(guest, both)
    mark = guest.target.catalog(UUID).backups[both].verification
    assert list(mark.broken_disks) == ["vdb"] and mark.disks == ()
    # it is as old as what was known before: the next run of the schedule reads it again
    assert upkeep._is_due(guest.target.catalog(UUID).backups[both], 0.001, WHEN)


def test_one_whose_reader_is_killed_in_the_middle_is_not_marked(chain, monkeypatch):
    guest, made = chain
    begun, read, begins = [], reader.Reader.read, reader._start

    def begin(argv):
        begun.append(begins(argv))
        return begun[-1]

    def killed(self, *where):
        begun[-1].kill()
        return read(self, *where)

    monkeypatch.setattr(reader, "_start", begin)
    monkeypatch.setattr(reader.Reader, "read", killed)
    with pytest.raises(reader.TemporaryFailure, match="qemu-nbd was killed"):
        verified(guest, made[1])
    assert guest.target.catalog(UUID).good_ids == made


def test_the_reader_reads_through_the_chain(chain):
    guest, made = chain
    with reader.open_image(["-f", "qcow2", str(path(guest, made[2]))]) as shown:
        assert shown.size_bytes == SIZE
        assert shown.read(0, SIZE) == guest.images[made[2]]
        assert shown.read(3 * 65536 - 1, 2) == b"\0\1"
        with pytest.raises(reader.TemporaryFailure):
            shown.read(SIZE, 1)


def test_the_reader_reads_nothing_that_is_none(tmp_path):
    (tmp_path / "x.qcow2").write_bytes(b"no image")
    wrong = pytest.raises(reader.TemporaryFailure, match="not in qcow2 format")
    with wrong, reader.open_image(["-f", "qcow2", str(tmp_path / "x.qcow2")]):
        pass


# prune


def left(guest):
    return sorted(guest.target.catalog(UUID).backups)


def test_what_no_rule_keeps_goes_and_what_a_chain_needs_stays(chain, tmp_path):
    guest, made = chain
    assert [one.retained for one in prune.prune_guest(guest.target, UUID, Retention(last=2))] == [
        True
    ] * 4
    shown = prune.prune_guest(guest.target, UUID, Retention(last=1), test=True)
    assert left(guest) == made
    assert prune.prune_guest(guest.target, UUID, Retention(last=1)) == shown
    assert left(guest) == [made[3]] == assert_whole(guest, tmp_path)
    assert not [one for one in guest.target.folder.names(UUID) if one.startswith((".new", ".gone"))]


def test_what_was_found_broken_is_read_again_before_it_is_removed(chain, tmp_path, monkeypatch):
    """The machine was short of something then: all of them count as good ones again."""
    guest, made = chain
    guest.back_up(whole=True)
    for one in made[1:]:
        guest.target.save_verification(
            UUID, one, Verification(WHEN, ("vda",), {"vda": "at 0: Invalid argument"})
        )
    shown = prune.prune_guest(guest.target, UUID, Retention(last=1), test=True)
    assert [one.retained for one in shown] == [True, False, False, False, False]
    assert len(left(guest)) == 5
    prune.prune_guest(guest.target, UUID, Retention(last=4))
    assert len(left(guest)) == 5
    # the newest of those was good all the time
    newest = guest.back_up(whole=True)
    guest.target.save_verification(
        UUID, newest, Verification(WHEN, ("vda",), {"vda": "Broken pipe"})
    )
    prune.prune_guest(guest.target, UUID, Retention(last=1))
    assert newest in left(guest)
    stock = guest.target.catalog(UUID)
    assert all(
        not one.verification.broken_disks
        for one in stock
        if one.verification and one.backup_id != newest
    )


def test_what_cannot_be_read_again_stays(chain, tmp_path, monkeypatch):
    guest, made = chain
    guest.target.save_verification(
        UUID, made[2], Verification(WHEN, ("vda",), {"vda": "at 0: Invalid argument"})
    )
    with monkeypatch.context() as patched:
        failing(tmp_path, patched, "qemu-nbd", "exit 1")
        found = prune.prune_guest(guest.target, UUID, Retention(last=1))
    assert left(guest) == made
    why = {one.backup_id: one.reason for one in found}[made[2]]
    assert why.startswith(
        "it was found broken, and cannot be verified again now: vda: qemu-nbd does"
    )
    prune.prune_guest(guest.target, UUID, Retention(last=1))
    assert left(guest) == [made[3]]


def test_one_that_is_read_stays_with_what_it_needs(chain, tmp_path):
    guest, made = chain
    with guest.target.open_backup(UUID, made[1]):
        found = prune.prune_guest(guest.target, UUID, Retention(last=1))
        assert {one.backup_id: one.reason for one in found}[made[1]] == "the backup is being read"
        assert left(guest) == [made[0], made[1], made[3]] == assert_whole(guest, tmp_path)
    prune.prune_guest(guest.target, UUID, Retention(last=1))
    assert left(guest) == [made[3]]


def test_one_that_somebody_begins_to_read_in_the_middle_stays(chain, tmp_path, monkeypatch):
    guest, made = chain
    used, stack = guest.target.is_used, contextlib.ExitStack()

    def then_read(uuid, ident):
        found = used(uuid, ident)
        if ident == made[3]:  # the last that is asked about
            stack.enter_context(guest.target.open_backup(UUID, made[1]))
        return found

    monkeypatch.setattr(guest.target, "is_used", then_read)
    with stack:
        found = {
            one.backup_id: one for one in prune.prune_guest(guest.target, UUID, Retention(last=1))
        }
        assert left(guest) == [made[0], made[1], made[3]] == assert_whole(guest, tmp_path)
        assert found[made[1]].retained and found[made[0]].retained and not found[made[2]].retained
        assert found[made[1]].reason == READ
        # one that went in the first round stands where it stood
        assert list(found) == made[::-1]


def test_what_a_killed_one_left_goes_but_not_where_it_is_only_asked(chain):
    guest, made = chain
    for name in (".gone-", ".new-"):
        shutil.copytree(path(guest, made[0]).parent, path(guest, f"{name}{made[0]}").parent)
    kept = guest.target.folder.names(UUID)
    prune.prune_guest(guest.target, UUID, Retention(last=2), test=True)
    assert guest.target.folder.names(UUID) == kept
    prune.prune_guest(guest.target, UUID, Retention(last=2))
    assert guest.target.folder.names(UUID) == [".lock", *made]


def test_of_many_backups_only_what_is_removed_or_bad_is_told(chain, monkeypatch):
    """Salt cuts an answer of more than 1 MiB, and nobody would know what became of any."""
    guest, made = chain
    monkeypatch.setattr(upkeep, "MAX_LISTED", 3)
    os.truncate(path(guest, made[2]), 1000)
    read = upkeep.verify_all(guest.target, None, upkeep.ALL, None, WHEN, lambda *_: None)
    assert ([one.backup_id for one in read.backups], read.omitted) == ([made[2]], 3)
    [told] = upkeep.prune_guests(guest.target, Retention(last=1), None, test=True).guests
    assert (sorted(one.backup_id for one in told.backups), told.omitted) == (made[:3], 1)


def test_not_while_one_is_made(chain):
    guest, made = chain
    guest.target.lock = lambda uuid, **_how: guest.target.folder.lock(uuid, ".lock")
    with guest.target.folder.lock(UUID, ".lock"), pytest.raises(Busy):
        prune.prune_guest(guest.target, UUID, Retention(last=1))
    assert left(guest) == made


# kill -9


@pytest.fixture
def ram():
    with tempfile.TemporaryDirectory(dir=RAM) as folder:
        yield Path(folder)


def again(guest, kept):
    """A function that makes the target as it was."""

    def before():
        folder = Path(guest.target.folder.root)
        shutil.rmtree(folder)
        subprocess.run(["cp", "-a", kept, folder], check=True)

    return before


def test_a_prune_that_is_killed_leaves_every_backup_whole(ram):
    guest = Guest(ram / "target")
    for number in range(1, 7):
        guest.write(number, number)
        guest.back_up(whole=number in (1, 4, 6))
    made = left(guest)
    kept = ram / "kept"
    shutil.copytree(guest.target.folder.root, kept)
    rules = Retention(last=1)

    def work():
        prune.prune_guest(guest.target, UUID, rules)

    def check():
        good = assert_whole(guest, ram)
        # what is there is as good as it was
        assert good == left(guest) and made[-1] in good
        work()
        assert left(guest) == [made[-1]] == assert_whole(guest, ram)
        assert not [
            name for name in guest.target.folder.names(UUID) if name.startswith((".new", ".gone"))
        ]

    assert killed_at_every_step(work, check, again(guest, kept)) > 30


def test_a_backup_that_is_killed_is_there_whole_or_not_at_all(ram):
    guest = Guest(ram / "target")
    first = guest.back_up()
    kept, spare = ram / "kept", ram / "spare"
    shutil.copytree(guest.target.folder.root, kept)
    # the file that will be written, and its digests
    guest.write(7, 7)
    second = guest.back_up()
    shutil.copytree(path(guest, second).parent, spare)
    parent = guest.target.catalog(UUID).backups[second].record.disks[0]

    def work():
        with guest.target.create(UUID, second) as new:
            shutil.copyfile(spare / "vda.qcow2", new.disk_path("vda"))
            shutil.copyfile(spare / "vda.pieces", Path(new.disk_path("vda")).parent / "vda.pieces")
            new.finish(told([parent]), XML)

    def check():
        good = assert_whole(guest, ram)
        assert good in ([first], [first, second])
        if good == [first]:
            assert left(guest) == [first]
            work()
        assert assert_whole(guest, ram) == [first, second]
        # what was left of the killed one goes with the next
        third = guest.back_up()
        assert guest.target.folder.names(UUID) == [".lock", first, second, third]

    assert killed_at_every_step(work, check, again(guest, kept)) > 20


def test_a_verification_that_is_killed_leaves_the_old_mark_or_the_new_one(ram):
    guest = Guest(ram / "target")
    made = guest.back_up()
    verified(guest, made)
    old = guest.target.catalog(UUID).backups[made].verification
    kept = ram / "kept"
    shutil.copytree(guest.target.folder.root, kept)
    new = Verification("2026-11-24T00:00:00Z", ("vda",), {"vda": "wrong"})

    def check():
        assert guest.target.catalog(UUID).backups[made].verification in (old, new)
        guest.target.save_verification(UUID, made, new)
        assert guest.target.catalog(UUID).backups[made].verification == new

    work = lambda: guest.target.save_verification(UUID, made, new)  # noqa: E731
    assert killed_at_every_step(work, check, again(guest, kept), every=1) > 5


# a target that nobody can write to


def test_of_a_target_that_is_read_only_everything_can_be_read(chain, tmp_path):
    """A snapshot, or ext4 after an error: there a backup is wanted most."""
    guest, made = chain
    _overwritten(path(guest, made[3]), 5 * 65536, b"\xff" * 65536)
    root, mount = guest.target.folder.root, tmp_path / "mounted"
    mount.mkdir()
    words = f"import sys, {__name__} as one; one.read_only(*sys.argv[1:])"
    script = f'mount --bind {root} {mount} && mount -o remount,ro,bind {mount} && exec "$@"'
    argv = ["unshare", "--mount", "--propagation", "private", "bash", "-ec", script, "bash"]
    done = subprocess.run(
        [*argv, sys.executable, "-c", words, str(mount), *made], check=False, capture_output=True,
        text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def read_only(folder, *made):
    """In the namespace where it is."""
    found = target.BackupTarget(folder)
    assert found.folder.is_read_only
    with found.open_backup(UUID, made[0]) as one:
        assert one.backup_id == made[0]
    assert verify.backup(found, UUID, made[1], WHEN, lambda *_: None).is_good
    assert list(verify.backup(found, UUID, made[3], WHEN, lambda *_: None).broken_disks) == ["vda"]
    [read] = upkeep.verify_all(found, None, made[2], None, WHEN, lambda *_: None).backups
    assert (read.problem, read.error) == (None, None)
    [told] = upkeep.prune_guests(found, Retention(last=1), None, True).guests
    gone = [one.backup_id for one in told.backups if not one.retained]
    assert (told.error, gone) == (None, [*made[2::-1]])
