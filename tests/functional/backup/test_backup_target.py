"""Backups in a target's folder as real qcow2 files: each is complete or does not exist."""

import contextlib
import dataclasses
import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from saltvirt import errors
from saltvirt.backup.model import chains, checksum_blocks, record
from saltvirt.backup.model.answers import GuestInspection, InspectedDisk
from saltvirt.backup.model.verification import Verification
from saltvirt.backup.target import target
from saltvirt.backup.target.safe_folder import Busy, SafeFolder
from tests.functional.backed_up import (
    MIB,
    SIZE,
    UUID,
    XML,
    Guest,
    assert_whole,
    disk,
    qemu_img,
    told,
)

pytestmark = pytest.mark.skipif(not os.path.exists("/usr/bin/qemu-img"), reason="no qemu-img")


@pytest.fixture
def guest(tmp_path):
    return Guest(tmp_path / "target")


def test_a_chain_is_restored_by_qemu_img_alone_bit_for_bit(guest, tmp_path):
    made = [guest.back_up()]
    for number, byte in ((3, 1), (63, 2), (3, 3), (0, 4)):
        guest.write(number, byte)
        made.append(guest.back_up())
    assert guest.target.catalog(UUID).good_ids == made
    assert assert_whole(guest, tmp_path) == made
    assert len(set(guest.images.values())) == 5


def test_also_where_the_folder_was_carried_elsewhere(guest, tmp_path):
    guest.back_up()
    guest.write(3, 7)
    made = guest.back_up()
    guest.target.folder.root = str((tmp_path / "target").rename(tmp_path / "elsewhere"))
    assert guest.restored(made, tmp_path) == guest.images[made]


def test_what_a_person_finds_there(guest):
    made = guest.back_up()
    folder = Path(guest.target.folder.root, UUID, made)
    assert sorted(one.name for one in folder.iterdir()) == [
        "domain.xml", "record.json", "record.sha256", "vda.pieces", "vda.qcow2",
    ]  # fmt: skip
    subprocess.run(["sha256sum", "--quiet", "-c", "record.sha256"], cwd=folder, check=True)
    data = json.loads((folder / "record.json").read_text())
    assert data["definition_sha256"] == hashlib.sha256(XML.encode()).hexdigest()
    assert (folder / "vda.pieces").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o77 == 0
    [found] = guest.target.catalog(UUID).records
    assert guest.target.definition(found) == XML
    assert len(list(guest.target.read_checksums(found, found.disks[0]))) == 64
    assert guest.target.guests() == [UUID]


def test_one_that_fails_leaves_nothing(guest):
    with pytest.raises(ZeroDivisionError), guest.target.create(UUID, guest.new_ident()) as new:
        Path(new.disk_path("vda")).write_bytes(b"x")
        raise ZeroDivisionError
    assert guest.target.folder.names(UUID) == [".lock"]
    assert guest.target.catalog(UUID).last is None


def test_what_a_process_that_died_left_goes_when_the_next_is_made(guest):
    for one in (".new-", ".gone-"):
        guest.target.folder.make(UUID, f"{one}{guest.new_ident()}")
    made = guest.back_up()
    assert guest.target.folder.names(UUID) == [".lock", made]


@pytest.mark.parametrize("name", ["lost+found", UUID.upper(), "images", ".lock"])
def test_what_is_no_guests_is_no_guest(guest, name):
    guest.back_up()
    Path(guest.target.folder.root, name).mkdir()
    assert guest.target.guests() == [UUID]


def test_a_number_that_was_given_meanwhile_is_given_to_no_other(guest):
    made = [guest.back_up() for _ in range(3)]
    for one in made[1:]:
        with (
            pytest.raises(errors.InvalidInput, match=f"{made[2]}, was made meanwhile"),
            guest.target.create(UUID, one),
        ):
            pytest.fail("it is made")
    assert guest.target.catalog(UUID).good_ids == made


def test_who_reads_it_is_seen(guest):
    made = guest.back_up()
    assert guest.target.is_used(UUID, made) is False
    with guest.target.open_backup(UUID, made):
        assert guest.target.is_used(UUID, made) is True
        assert guest.target.remove(UUID, made) is False
    assert guest.target.remove(UUID, made) is True


def test_one_of_which_the_record_cannot_be_read_is_not_read(guest):
    made = guest.back_up()
    Path(guest.target.folder.root, UUID, made, record.FILE).write_text("{}")
    why = guest.target.catalog(UUID).backups[made].record_error
    with pytest.raises(errors.BadAnswer) as found, guest.target.open_backup(UUID, made):
        pytest.fail("it is read")
    assert found.value.text == why


@pytest.fixture
def chain(guest):
    """(The record of the uppermost of three, its disk, the paths from there down)."""
    made = []
    for number in (1, 2, 3):
        guest.write(number, number)
        made.append(guest.back_up())
    of = guest.target.catalog(UUID).records[-1]
    return of, of.disks[0], [guest.target.folder.path(UUID, one, "vda.qcow2") for one in made[::-1]]


def test_a_disk_is_read_with_all_that_it_stands_on(guest, chain):
    of, one, paths = chain
    assert guest.target.layer_paths(of, one) == paths


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_no_tool_opens_what_stands_on_something_else_than_its_record_says(guest, chain, depth):
    of, one, paths = chain
    qemu_img("rebase", "-u", "-F", "raw", "-b", "/etc/shadow", paths[depth])
    with pytest.raises(
        errors.BadAnswer, match=r"vda.qcow2 .*has the backing file .*/etc/shadow"
    ) as found:
        guest.target.layer_paths(of, one)
    assert (Path(paths[depth]).parent.name in found.value.text) is (depth > 0)


def test_no_tool_opens_what_stands_on_a_disk_of_another_key(guest, chain, monkeypatch):
    of, one, paths = chain
    monkeypatch.setattr(target, "image_mismatch", lambda *_: None)
    below = Path(paths[1]).parent.name
    why = f"vda.qcow2 of {below} is encrypted with no key, .* with ours.0123456789abcdef"
    with pytest.raises(errors.BadAnswer, match=why):
        guest.target.layer_paths(of, dataclasses.replace(one, key="ours.0123456789abcdef"))


@pytest.mark.parametrize(
    "mounted, is_mounted, opens",
    [(True, True, True), (True, False, False), (False, False, True), (False, True, True)],
)
def test_a_folder_that_is_to_be_mounted_is_opened_only_then(
    guest, monkeypatch, mounted, is_mounted, opens
):
    root = guest.target.folder.root
    monkeypatch.setattr(target.os.path, "ismount", lambda path: is_mounted and path == root)
    if opens:
        assert target.open_target(root, mounted).folder.root == root
    else:
        with pytest.raises(errors.InvalidInput, match=f"{root} is not mounted"):
            target.open_target(root, mounted)


def unfit(guest, make, xml=XML, **other):
    made = guest.new_ident()
    with guest.target.create(UUID, made) as new:
        make(new.disk_path("vda"))
        with new.checksum_writer("vda"):
            pass
        new.finish(told([disk(made, **other)]), xml)


def made_empty(path, *options):
    qemu_img("create", "-q", "-f", "qcow2", *options, path, str(SIZE))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([str(SIZE + MIB)], "has 5242880 bytes instead of 4194304"),
        (["-u", "-b", "/etc/shadow", "-F", "raw", str(SIZE)], "has the backing file .*/etc/shadow"),
        (["-o", "data_file=x.raw", str(SIZE)], "has a data file"),
        (["--object", "secret,id=s,data=guess", "-o",
          "encrypt.format=aes,encrypt.key-secret=s", str(SIZE)],
         "is encrypted, but not according to its record"),
    ],
)  # fmt: skip
def test_a_file_that_the_record_does_not_tell_of_is_no_backup(guest, argv, words, tmp_path):
    *options, size = argv

    def make(path):
        subprocess.run(
            ["qemu-img", "create", "-q", "-f", "qcow2", *options, path, size],
            check=True, capture_output=True, cwd=tmp_path,
        )  # fmt: skip

    with pytest.raises(errors.BadAnswer, match=words):
        unfit(guest, make)
    assert guest.target.folder.names(UUID) == [".lock"]


def _marked_corrupt(path):
    """QEMU, docs/interop/qcow2.txt: bit 1 of the incompatible features."""
    made_empty(path)
    with open(path, "r+b") as file:
        file.seek(79)
        file.write(b"\2")


def _with_a_snapshot(path):
    made_empty(path)
    qemu_img("snapshot", "-c", "one", path)


@pytest.mark.parametrize("make", [_marked_corrupt, _with_a_snapshot])
def test_a_file_in_which_more_is_than_a_disk_is_no_backup(guest, make):
    with pytest.raises(errors.BadAnswer, match="a snapshot, or is marked as corrupt"):
        unfit(guest, make)


def test_the_longest_definition_is_still_one(guest):
    xml = "<" * record.MAX_DEFINITION_BYTES
    unfit(guest, made_empty, xml)
    [found] = guest.target.catalog(UUID).records
    assert guest.target.definition(found) == xml


def test_all_of_it_is_on_the_disk_before_it_has_its_name(guest, monkeypatch):
    """A loss of power then leaves it whole, or leaves none."""
    did = []

    def watched(what, real):
        return lambda *how, **more: did.append(what) or real(*how, **more)

    for what in ("write", "sync", "rename"):
        real = getattr(guest.target.folder, what)
        monkeypatch.setattr(guest.target.folder, what, watched(what, real))
    unfit(guest, made_empty)
    assert did == [*["write"] * 3, "sync", "rename"]


def test_a_file_that_was_not_written_is_no_backup(guest):
    with pytest.raises(errors.BadAnswer, match=r"vda\.qcow2 was not written"):
        unfit(guest, lambda path: None)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"key": "vault.0123456789abcdef"}, "vda.qcow2 of .* is not encrypted by LUKS"),
        (
            {"xml": "<" * (record.MAX_DEFINITION_BYTES + 1)},
            "the definition of the guest is too long",
        ),
    ],
)
def test_what_no_record_can_tell_is_no_backup(guest, other, words):
    with pytest.raises(errors.BadAnswer, match=words):
        unfit(guest, made_empty, **other)
    assert guest.target.folder.names(UUID) == [".lock"]


def test_digests_are_taken_in_order(guest):
    with guest.target.create(UUID, guest.new_ident()) as new, new.checksum_writer("vda") as file:
        file.add(checksum_blocks.compute(65536, b"b" * 512))
        with pytest.raises(ValueError, match="the block at 66047 comes after 66048"):
            file.add(checksum_blocks.compute(66047, b"a" * 512))
        file.add(checksum_blocks.compute(66048, b"c" * 512))


def test_digests_that_are_others_than_the_record_knows_are_told_to_have_changed(guest):
    """Each line is well formed: only the digest of all of them tells."""
    made = guest.back_up()
    [found] = guest.target.catalog(UUID).records
    path = Path(guest.target.folder.root, UUID, made, "vda.pieces")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[-1] = checksum_blocks.compute(63 * 65536, b"x" * 65536).line
    path.write_bytes(b"".join(lines))
    told_of = []
    with pytest.raises(errors.BadAnswer, match=f"vda.pieces of {made} has changed"):
        told_of.extend(guest.target.read_checksums(found, found.disks[0]))
    assert guest.target.catalog(UUID).good_ids == [made]  # until it is read back


@pytest.mark.parametrize("ident", ["", "..", "1", "latest", "000001-20261123T155220Z-0000000/"])
def test_what_is_no_name_of_a_backup_names_none(guest, ident):
    for what in (guest.target.remove, guest.target.is_used):
        with pytest.raises(errors.InvalidInput, match="is not a valid backup name"):
            what(UUID, ident)


def test_one_that_is_removed_while_the_others_are_listed_is_none(guest, monkeypatch):
    gone, stays = guest.back_up(), guest.back_up(whole=True)
    lengths = SafeFolder.lengths

    def late(self, *parts):
        if parts[-1] == gone:
            guest.target.remove(UUID, gone)
        return lengths(self, *parts)

    monkeypatch.setattr(SafeFolder, "lengths", late)
    assert list(guest.target.catalog(UUID).backups) == [stays]


def test_an_increment_on_what_is_broken_is_no_backup(guest):
    below = guest.back_up()
    guest.target.save_verification(
        UUID, below, Verification("2026-11-23T15:52:20Z", ("vda",), {"vda": "wrong"})
    )
    with pytest.raises(errors.BadAnswer, match=f"would depend on {below}: wrong"):
        guest.back_up()


def test_two_at_once(guest):
    one = guest.new_ident()
    busy = pytest.raises(Busy, match="is locked by another process")
    with guest.target.create(UUID, one), busy, guest.target.create(UUID, one, wait_s=0):
        pass
    guest.back_up(made=one)
    late = pytest.raises(errors.InvalidInput, match=f"{one}, was made meanwhile")
    with late, guest.target.create(UUID, one):
        pass


def test_one_that_is_read_is_not_removed(guest):
    made = guest.back_up()
    with guest.target.open_backup(UUID, made) as found:
        assert found.backup_id == made
        with guest.target.open_backup(UUID, made), guest.target.lock(UUID):
            assert not guest.target.remove(UUID, made)
    assert guest.target.remove(UUID, made)
    assert guest.target.folder.names(UUID) == [".lock"]
    with pytest.raises(errors.NotFound), guest.target.open_backup(UUID, made):
        pass


# what others left there


def spoil_json(folder):
    (folder / "record.json").write_text("{")


def spoil_seal(folder):
    text = (folder / "record.json").read_text()
    (folder / "record.json").write_text(text.replace("web1", "web2"))


def spoil_link(folder):
    (folder / "record.json").rename(folder / "x")
    (folder / "record.json").symlink_to("x")


def spoil_fifo(folder):
    (folder / "record.json").unlink()
    os.mkfifo(folder / "record.json")


def spoil_size(folder):
    (folder / "record.json").write_bytes(b" " * 10 * MIB)


def spoil_missing(folder):
    (folder / "record.json").unlink()


def spoil_folder(folder):
    (folder / "record.json").unlink()
    (folder / "record.json").mkdir()


def spoil_disk(folder):
    os.truncate(folder / "vda.qcow2", 1000)


def spoil_disk_link(folder):
    (folder / "vda.qcow2").rename(folder / "x")
    (folder / "vda.qcow2").symlink_to("x")


def spoil_pieces(folder):
    (folder / "vda.pieces").unlink()


def spoil_mark(folder):
    (folder / "verified.json").write_text('{"verified_at": "never"')


SPOILED = [value for name, value in globals().items() if name.startswith("spoil_")]


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
def test_what_is_spoiled_is_not_good_and_no_other_is_harmed(guest, spoil, tmp_path):
    first, second = guest.back_up(), guest.back_up(whole=True)
    spoil(Path(guest.target.folder.root, UUID, second))
    stock = guest.target.catalog(UUID)
    assert stock.good_ids == [first]
    assert "\n" not in stock.problem(second)
    assert_whole(guest, tmp_path)
    unread = contextlib.suppress(errors.BadAnswer, errors.NotFound)
    with unread, guest.target.open_backup(UUID, second):
        pass
    # the next is a whole one
    seen = InspectedDisk("vda", SIZE, "file /srv/web1.qcow2",
                           bitmaps={chains.checkpoint(second): chains.GOOD})  # fmt: skip
    one = GuestInspection(UUID, True, (seen,), (chains.checkpoint(second),))
    assert chains.plan(one, "hv1", stock)[0].parent is None
    # and it can be removed
    assert guest.target.remove(UUID, second)
    assert sorted(guest.target.catalog(UUID).backups) == [first]


def test_a_backup_under_another_guests_or_another_name_is_none(guest, tmp_path):
    first = guest.back_up()
    folder = Path(guest.target.folder.root)
    other = UUID.replace("b7", "c7")
    subprocess.run(["cp", "-a", folder / UUID, folder / other], check=True)
    assert guest.target.catalog(other).good_ids == []
    assert "belongs to another backup" in guest.target.catalog(other).problem(first)


@pytest.mark.parametrize("uuid", ["..", "../x", "", "x", UUID.upper(), f"{UUID}\n"])
def test_no_place_outside_is_looked_at(guest, uuid):
    with pytest.raises(errors.InvalidInput):
        guest.target.catalog(uuid)


def test_no_link_is_followed(guest, tmp_path):
    made = guest.back_up()
    folder = Path(guest.target.folder.root)
    (folder / UUID).rename(tmp_path / "x")
    (folder / UUID).symlink_to(tmp_path / "x")
    with pytest.raises(errors.BadAnswer, match="has an unexpected type"):
        guest.target.catalog(UUID)
    with pytest.raises(errors.BadAnswer):
        guest.target.remove(UUID, made)
    assert (tmp_path / "x" / made).is_dir()


def test_what_cannot_be_a_targets_folder(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    for name, words in (("gone", "cannot use the folder"), ("file", "is not a folder"),
                        ("open", "must belong to root"), ("link", "is not a folder")):  # fmt: skip
        with pytest.raises(errors.InvalidInput, match=words):
            SafeFolder(str(tmp_path / name))


@pytest.mark.parametrize("folder", [0, None, b"/srv", ["/srv"], {"": None}, "", "srv/backup"])
@pytest.mark.parametrize("mounted", [True, False])
def test_a_targets_folder_is_an_absolute_path(folder, mounted):
    with pytest.raises(errors.InvalidInput, match="folder must be an absolute path, not "):
        target.open_target(folder, mounted)


def test_removing_takes_a_link_and_not_what_it_names(guest, tmp_path):
    made = guest.back_up()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    folder = Path(guest.target.folder.root, UUID, made)
    (folder / "link").symlink_to(tmp_path / "mine")
    (folder / "deep").mkdir()
    (folder / "deep" / "link").symlink_to(tmp_path / "mine")
    assert guest.target.remove(UUID, made)
    assert (tmp_path / "mine" / "file").exists()
