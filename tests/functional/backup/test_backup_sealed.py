"""Backups that are encrypted at their target with a key file of that machine."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from saltvirt import errors
from saltvirt.backup.model.answers import ServedDisk, Serving
from saltvirt.backup.model.retention import Retention
from saltvirt.backup.target import daemon, files, keyfile, layers, pull, reader, upkeep
from saltvirt.system import tools
from tests.functional.backed_up import MIB, UUID, XML, disk, qemu_img, told
from tests.functional.pulled import HAS_LIBNBD, HOST, SIZE, Pulled
from tests.tools import docs

pytestmark = pytest.mark.skipif(not HAS_LIBNBD, reason="no libnbd")
SECRET = b"the guest's own words. "
NOW = "2026-11-25T16:00:00Z"
BUSY = "Unable to get accurate CPU usage"


def make_key(path):
    subprocess.run(["bash", "-ec", f"umask 077; openssl rand -base64 32 > {path}"], check=True)


@pytest.fixture
def keys(tmp_path, monkeypatch):
    """The folder of keys, with one."""
    return keys_in(tmp_path, monkeypatch)


def keys_in(place, monkeypatch):
    folder = place / "backup-keys"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(keyfile, "FOLDER", str(folder))
    make_key(folder / "vault.key")
    return folder


@pytest.fixture
def guest(tmp_path, keys):
    return guest_in(tmp_path)


def guest_in(place):
    found = Pulled(place, place / "target")
    found.write(0, SECRET * 8000)
    found.write(5 * MIB, 300_000, byte=90)
    return found


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """The guest, and three backups that stand on each other: each takes a second of a CPU."""
    place = tmp_path_factory.mktemp("once")
    with pytest.MonkeyPatch.context() as patch:
        keys_in(place, patch)
        guest = guest_in(place)
        made = [guest.back_up("vault")[0]]
        guest.write(MIB + 4096, SECRET * 100)
        guest.write(5 * MIB, 65536, byte=0)
        made.append(guest.back_up("vault")[0])
        guest.write(2 * MIB, SECRET * 10_000)
        made.append(guest.back_up("vault")[0])
    return place, guest, made


@pytest.fixture
def chain(once, tmp_path, keys):
    """A copy of them, with their key."""
    place, first, made = once
    for name in ("target", "backup-keys"):
        shutil.copytree(place / name, tmp_path / name, dirs_exist_ok=True)
    guest = Pulled(tmp_path, tmp_path / "target")
    shutil.copy(first.disk, guest.disk)
    guest.now, guest.images = bytearray(first.now), dict(first.images)
    guest.bitmaps = dict(first.bitmaps)
    return guest, made


def every_byte(guest):
    return {path: path.read_bytes() for path in Path(guest.target.folder.root).rglob("*")
            if path.is_file()}  # fmt: skip


def opened(guest, ident):
    [found] = [one for one in guest.target.catalog(UUID).records if one.backup_id == ident]
    return layers.load(guest.target, found, found.disks[0])


def read_back(guest):
    return upkeep.verify_all(guest.target, None, upkeep.ALL, None, NOW, lambda *_: None).backups


def test_nothing_of_the_guests_lies_there_and_each_is_read_with_the_key(chain):
    guest, made = chain
    for path, data in every_byte(guest).items():
        assert SECRET not in data and b"\x5a" * 64 not in data, path
    for ident in made:
        with reader.open_image(opened(guest, ident).argv) as shown:
            assert shown.read(0, SIZE) == guest.images[ident], ident
    stock = guest.target.catalog(UUID)
    assert stock.good_ids == made
    assert [stock.backups[one].record.disks[0].parent for one in made] == [None, *made[:2]]
    # an increment is one
    lengths = [length for one in made[1:] for length in stock.backups[one].lengths.values()]
    assert max(lengths) < 4 * MIB


def test_the_key_is_in_no_argument_and_in_no_file_there(guest, keys, tmp_path, monkeypatch):
    """Each tool is a script that notes what it was told, and then is the tool."""
    secret = (keys / "vault.key").read_text().strip()
    folder, noted = tmp_path / "bin", tmp_path / "noted"
    folder.mkdir()
    for name in ("qemu-img", "qemu-nbd", "qemu-storage-daemon", "setpriv"):
        real = f"/usr/bin/{name}"
        script = f'#!/bin/sh\n(printf "%s\\n" "$0 $*"; export) >> {noted}\nexec {real} "$@"\n'
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    said = []
    real, told = Pulled.receive, said.append
    monkeypatch.setattr(Pulled, "receive", lambda *args, **more: real(*args, tell=told, **more))
    guest.back_up("vault")
    assert all(one.problem is None for one in read_back(guest))
    told = noted.read_text()
    assert all(name in told for name in ("qemu-img create", "qemu-nbd", "secret,id=key,file="))
    assert secret not in told and secret not in json.dumps(said)
    assert not any(secret.encode() in data for data in every_byte(guest).values())
    found = keyfile.load("vault")
    assert secret not in repr(found) and secret not in json.dumps(found.to_answer())


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("refusals", "said", "is_made"),
    [(19, BUSY, True), (20, BUSY, False), (1, "No space left on device", False)],
)
def test_a_busy_machine_is_no_reason_not_to_encrypt(tmp_path, monkeypatch, refusals, said, is_made):
    """Where others have the CPU, QEMU cannot tell how long LUKS takes, and gives up."""
    disk, path = pull.PulledDisk("vda", "vda", MIB), tmp_path / "vda.qcow2"
    left = [errors.OperationFailed(f"make it: qemu-img: {said}")] * refusals

    def busy(*_how):
        if left:
            raise left.pop()
        path.touch()  # QEMU itself may find this machine busy

    monkeypatch.setattr(tools, "run", busy)
    why = contextlib.nullcontext() if is_made else pytest.raises(errors.VirtError, match=said)
    with why:
        pull._create(str(path), disk, keyfile.load("vault"))
    assert (path.exists(), left) == (is_made, [])


def test_what_a_piece_holds_cannot_be_tried_out(chain):
    """Whoever reads the target's folder guesses a block: the plain digest of it is not there."""
    guest, made = chain
    text = Path(guest.target.folder.root, UUID, made[0], "vda.pieces").read_text()
    digests = re.findall("[0-9a-f]{64}", text)
    assert digests
    image = guest.images[made[0]]
    assert hashlib.sha256(image[:MIB]).hexdigest() not in digests


def test_read_back_finds_a_byte_that_fell_and_what_was_put_in_its_place(chain):
    guest, made = chain
    assert [one.problem for one in read_back(guest)] == [None] * 3
    path = Path(guest.target.folder.root, UUID, made[2], "vda.qcow2")
    data = bytearray(path.read_bytes())
    data[-70_000] ^= 1
    path.write_bytes(data)
    found = read_back(guest)
    assert [one.problem is None for one in found] == [True, True, False]
    assert "differ from what was backed up" in found[2].problem


def test_another_key_is_said_and_makes_no_backup_a_bad_one(chain, keys, tmp_path):
    guest, made = chain
    kept = (keys / "vault.key").read_bytes()
    (keys / "vault.key").unlink()
    make_key(keys / "vault.key")
    found = read_back(guest)
    assert all("is not the key that" in one.error for one in found)
    assert guest.target.catalog(UUID).good_ids == made
    guest.write(0, 4096, byte=7)
    _, plan = guest.back_up("vault")
    assert plan.parent is None
    assert re.search("encrypted with the key vault.*this one is", plan.reason)
    # and the rules remove none of them for it
    rules = Retention(last=4)
    kept_there = upkeep.prune_guests(guest.target, rules, None, False).guests[0].backups
    assert all(one.retained for one in kept_there)
    # brought back under another name it is not looked for; under its own it opens the old ones
    (keys / "vault.key").write_bytes(kept)
    assert [one.error is None for one in read_back(guest)] == [True, True, True, False]
    (keys / "vault.key").unlink()
    assert all("Restore it, or" in one.error for one in read_back(guest))


def test_one_that_is_not_encrypted_stands_on_none_that_is(chain):
    """Whatever a hypervisor says: it could be read by nobody."""
    guest, made = chain
    ident = guest.plan().backup_id
    taken = dataclasses.replace(disk(ident, made[-1]), size_bytes=SIZE)
    words = f"would depend on {made[-1]}, which is encrypted with vault.*, .* with none"
    refused = pytest.raises(errors.BadAnswer, match=words)
    with refused, guest.target.create(UUID, ident) as new, new.checksum_writer("vda"):
        below = ["-u", "-b", taken.backing[0], "-F", taken.backing[1]]
        qemu_img("create", "-q", "-f", "qcow2", *below, new.disk_path("vda"), str(SIZE))
        new.finish(told([taken]), XML)
    assert guest.target.catalog(UUID).good_ids == made


def test_to_libguestfs_it_is_shown_without_its_key_and_only_meanwhile(chain, tmp_path):
    guest, made = chain
    [found] = [one for one in guest.target.catalog(UUID).records if one.backup_id == made[-1]]
    (tmp_path / "scratch").mkdir()
    with files._appliance_disks(guest.target, found, str(tmp_path / "scratch")) as [added]:
        assert (added.path, added.format, added.read_only) == ("vda", "raw", True)
        url = f"nbd+unix:///vda?socket={added.socket}"
        qemu_img("convert", "-f", "raw", "-O", "raw", url, str(tmp_path / "raw"))
        assert (tmp_path / "raw").read_bytes() == guest.images[made[-1]]
    assert subprocess.run(["qemu-img", "info", url], capture_output=True, check=False).returncode


def test_a_target_that_is_encrypted_from_now_on_and_no_longer(guest):
    plain, _ = guest.back_up()
    sealed, plan = guest.back_up("vault")
    assert "is not encrypted, this one is encrypted with the key vault" in plan.reason
    again, plan = guest.back_up()
    assert "this one is not encrypted" in plan.reason
    assert guest.target.catalog(UUID).good_ids == [plain, sealed, again]
    assert [one.problem for one in read_back(guest)] == [None] * 3
    lines = [SECRET in data for path, data in every_byte(guest).items() if sealed in str(path)]
    assert not any(lines)


def test_prune_leaves_what_a_chain_needs(chain):
    guest, made = chain
    upkeep.prune_guests(guest.target, Retention(last=1), None, False)
    assert guest.target.catalog(UUID).good_ids == made
    guest.bitmaps.clear()
    last, plan = guest.back_up("vault")
    assert plan.parent is None
    upkeep.prune_guests(guest.target, Retention(last=1), None, False)
    assert guest.target.catalog(UUID).good_ids == [last]
    assert [one.problem for one in read_back(guest)] == [None]


def test_it_is_shown_for_a_restore(chain, tmp_path):
    guest, made = chain
    where = str(tmp_path / "shown")
    server = daemon.begin([opened(guest, made[2]).exported("vda")], where)
    try:
        copy = tmp_path / "copy.raw"
        qemu_img("convert", "-O", "raw", f"nbd+unix:///vda?socket={where}", str(copy))
        assert copy.read_bytes() == guest.images[made[2]]
    finally:
        server.end()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("guestfish"), reason="no guestfish here")
def test_single_files_by_the_real_libguestfs(keys, tmp_path, monkeypatch):
    """Emulated: /dev/kvm may be there and lead nowhere."""
    monkeypatch.setenv("LIBGUESTFS_BACKEND_SETTINGS", "force_tcg")
    for name, folder in (("GOT", "got"), ("_SCRATCH", "looks")):
        monkeypatch.setattr(files, name, str(tmp_path / folder))
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "words").write_bytes(SECRET)
    raw = tmp_path / "disk.raw"
    with open(raw, "wb") as file:
        file.truncate(SIZE)
    mke2fs = shutil.which("mke2fs", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    subprocess.run([mke2fs, "-q", "-t", "ext4", "-d", tmp_path / "tree", raw], check=True)
    guest = Pulled(tmp_path, tmp_path / "target")
    guest.write(0, raw.read_bytes())
    guest.back_up("vault")
    guest.write(7 * MIB, 4096, byte=1)
    assert guest.back_up("vault")[1].parent
    before = every_byte(guest)
    wanted = files.FileQuery("web1", "latest", "/words")
    got = files.get(guest.target, wanted, None, MIB, False, lambda done: None)
    assert Path(got.path).read_bytes() == SECRET
    assert every_byte(guest) == before
    assert not list(tmp_path.glob("looks/look-*"))


def commands():
    """The manual's, of a section."""
    text = (docs.DOCS / "how-to/backups.md").read_text(encoding="utf-8")
    section = text.partition("## Encrypted at the target")[2].partition("\n## ")[0]
    return re.findall("```sh\n(.*?)```", section, re.DOTALL)


def test_the_manuals_commands_make_a_key_and_restore_with_qemu_img_alone(guest, keys, tmp_path):
    make, restore = commands()
    (keys / "vault.key").unlink()
    keys.rmdir()
    sh = lambda script, at: subprocess.run(  # noqa: E731
        ["bash", "-ec", script.replace("/etc/salt-virt/backup-keys", str(keys))
         .replace("/srv/salt-images/web1_system.qcow2", str(tmp_path / "out.qcow2"))],
        cwd=at, check=True, capture_output=True, text=True,
    )  # fmt: skip
    sh(make, tmp_path)
    assert keyfile.load("vault").name == "vault"
    guest.back_up("vault")
    guest.write(MIB, SECRET * 100)
    made, plan = guest.back_up("vault")
    assert plan.parent
    sh(restore, Path(guest.target.folder.root, UUID, made))
    raw = tmp_path / "out.raw"
    qemu_img("convert", "-f", "qcow2", "-O", "raw", str(tmp_path / "out.qcow2"), str(raw))
    assert raw.read_bytes() == guest.images[made]


WRONG = {
    "open to others": lambda path: path.chmod(0o640),
    "short": lambda path: path.write_text("correct-horse-battery-staple\n"),
    "of words": lambda path: path.write_text(f"{'correct horse ' * 5}\n"),
    "several lines": lambda path: path.write_text("a" * 50 + "\n" + "b" * 50),
    "endless": lambda path: path.write_text("a" * 5000),
    "a link": lambda path: (path.rename(path.with_suffix(".x")), path.symlink_to("vault.x")),
    "a fifo": lambda path: (path.unlink(), os.mkfifo(path, 0o600)),
    "gone": lambda path: path.unlink(),
    "its folder": lambda path: path.parent.chmod(0o755),
}


@pytest.mark.parametrize("how", WRONG)
def test_what_is_no_key_is_refused_before_anything_is_read(guest, keys, how):
    WRONG[how](keys / "vault.key")
    with pytest.raises(errors.NoKey) as failed:
        guest.plan("vault")
    assert "\n" not in str(failed.value)
    with contextlib.suppress(errors.NoKey):
        guest.back_up("vault")
    assert not guest.target.catalog(UUID).backups


@pytest.mark.parametrize(
    "name", ["../vault", "", "a/b", "vault,file=/x", ".", "x" * 64, "vault.key"]
)
@pytest.mark.usefixtures("keys")
def test_a_name_is_no_path(name):
    with pytest.raises(errors.NoKey):
        keyfile.load(name)


def test_an_overlay_on_what_another_key_has_is_no_backup(chain, keys):
    """A hypervisor says what an increment stands on: it may name a backup of before."""
    guest, made = chain
    make_key(keys / "other.key")
    guest.write(0, 4096, byte=3)
    planned = guest.plan("vault")
    with pytest.raises(errors.VirtError), _receiving(guest, planned) as (ident, serving):
        guest.receive(ident, serving, "other")
    assert guest.target.catalog(UUID).good_ids == made
    assert not list(Path(guest.target.folder.root, UUID).glob(".new-*"))


@contextlib.contextmanager
def _receiving(guest, planned):
    [plan] = planned.disks
    with guest.shown(plan.since) as (port, authority):
        disk = ServedDisk(
            "vda", SIZE, "file /srv/web1.qcow2", "vda", (f"qemu:dirty-bitmap:{plan.since}",),
            plan.parent,
        )  # fmt: skip
        yield planned.backup_id, Serving(UUID, HOST, port, "stopped", XML, (disk,), authority)
