"""Backups whose disks are compressed at their target."""

import hashlib
import json
import os
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from saltvirt.backup.model.retention import Retention
from saltvirt.backup.target import upkeep
from tests.functional.backed_up import MIB, UUID, qemu_img
from tests.functional.pulled import HAS_LIBNBD, SIZE, Pulled

pytestmark = pytest.mark.skipif(not HAS_LIBNBD, reason="no libnbd")
NOW = "2026-11-25T16:00:00Z"
WORDS = b"what can be squeezed. " * 100_000


@pytest.fixture
def guest(tmp_path):
    return Pulled(tmp_path, tmp_path / "target")


def file_of(guest, ident):
    return Path(guest.target.folder.root, UUID, ident, "vda.qcow2")


def how(path):
    return json.loads(qemu_img("info", "--output=json", str(path)))


def restored(guest, ident, to):
    """By qemu-img alone."""
    qemu_img("convert", "-O", "raw", str(file_of(guest, ident)), str(to))
    return hashlib.sha256(to.read_bytes()).digest()


@pytest.mark.parametrize("kind", ["zstd", "zlib"])
def test_a_chain_is_what_was_there_and_small(guest, tmp_path, kind):
    guest.write(0, WORDS)
    guest.write(4 * MIB, os.urandom(MIB))
    guest.write(6 * MIB, 300_000, byte=90)
    made = [guest.back_up(compress=kind)[0]]
    guest.write(MIB + 4096, WORDS[:70_000])
    guest.write(6 * MIB, 65536, byte=0)
    made.append(guest.back_up(compress=kind)[0])
    # one that is not, and one that is, stand on what is
    guest.write(3 * MIB, os.urandom(1000))
    made.append(guest.back_up()[0])
    guest.write(3 * MIB + 500, os.urandom(200_000))
    made.append(guest.back_up(compress=kind)[0])
    for ident in made:
        wanted = hashlib.sha256(guest.images[ident]).digest()
        assert restored(guest, ident, tmp_path / "raw") == wanted
    first = how(file_of(guest, made[0]))
    assert first["format-specific"]["data"]["compression-type"] == kind
    # a MiB that cannot be squeezed, two and a third that can
    assert os.path.getsize(file_of(guest, made[0])) < 1.5 * MIB
    found = upkeep.verify_all(guest.target, None, upkeep.ALL, None, NOW, lambda *_: None).backups
    assert [one.problem for one in found] == [None] * len(made)


def test_where_data_begins_within_a_cluster_it_is_whole(tmp_path):
    """A raw file's holes end at blocks of its own, of 4 KiB or less."""
    guest = Pulled(tmp_path, tmp_path / "target", kind="raw")
    for offset in (4096, 3 * MIB - 4096, 5 * MIB + 512, SIZE - 512):
        data = os.urandom(512)
        with guest.disk.open("r+b") as file:
            file.seek(offset)
            file.write(data)
        guest.now[offset : offset + len(data)] = data
    ident, _ = guest.back_up(compress="zstd")
    assert restored(guest, ident, tmp_path / "raw") == hashlib.sha256(guest.now).digest()


def test_a_disk_that_ends_within_a_cluster_is_stored_as_it_is(tmp_path):
    guest = Pulled(tmp_path, tmp_path / "target", size=SIZE + 512)
    guest.write(SIZE, b"e" * 512)
    ident, _ = guest.back_up(compress="zstd")
    assert how(file_of(guest, ident))["format-specific"]["data"]["compression-type"] == "zlib"
    assert restored(guest, ident, tmp_path / "raw") == hashlib.sha256(guest.now).digest()


def test_prune_leaves_what_a_chain_needs(guest, tmp_path):
    guest.write(0, WORDS)
    guest.back_up(compress="zstd")
    guest.write(MIB, WORDS[:1000])
    last, _ = guest.back_up(compress="zstd")
    upkeep.prune_guests(guest.target, Retention(last=1), None, False)
    assert restored(guest, last, tmp_path / "raw") == hashlib.sha256(guest.now).digest()
