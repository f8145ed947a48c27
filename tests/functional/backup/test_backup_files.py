"""Single files of a backup: the file system of a guest, and the files of this machine that are
extracted. Most tests use a simulated guestfish; one uses the real one with a chain of real
backups."""

import contextlib
import dataclasses
import importlib.util
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from saltvirt import errors
from saltvirt.backup.model import checksum_blocks
from saltvirt.backup.target import files
from saltvirt.backup.target.files import FileQuery
from saltvirt.backup.target.target import BackupTarget
from tests.functional.backed_up import MIB, UUID, XML, disk, qemu_img, told

SIZE = 16 * MIB
ANOTHER = UUID.replace("b7", "a7")
IDENTS = ("000001-20261123T155220Z-00000000", "000002-20261123T165220Z-00000000")
PATH = os.environ["PATH"]

# Its commands over a folder in the place of the guest's: $TREE. Links are followed as they are.
GUESTFISH = """#!{python}
import os, re, subprocess, sys, time
WORD = re.compile(rb'"((?:[^"\\\\]|\\\\.)*)"|(\\S+)', re.S)
ESCAPE = re.compile(rb'\\\\(?:x([0-9a-f]{{2}})|(.))', re.S)
ENDS = {{b"n": b"\\n", b"t": b"\\t", b"r": b"\\r"}}
tree, lie = os.environ["TREE"], os.environ.get("LIE", "")
out = sys.stdout.buffer
mounted = False

def numbers(path, follow):
    one = os.stat(path) if follow else os.lstat(path)
    size = int(lie.partition(":")[2]) if lie.startswith("size:") else one.st_size
    return f"st_mode: {{one.st_mode}}\\nst_size: {{size}}\\nst_mtime_sec: 7\\n".encode()

def said(words):
    global mounted
    command, path = words[0], tree + (words[1] if len(words) > 1 else "")
    if command in ("add", "run"):
        with open(os.environ["SAID"], "a") as file:
            file.write(" ".join(words) + "\\n")
        return b""
    if command == "list-filesystems":
        return os.environ.get("SYSTEMS", "/dev/sda1: ext4\\n/dev/sda2: swap\\n").encode()
    if command == "inspect-os":
        return os.environ.get("ROOTS", "").encode()
    if command == "inspect-get-mountpoints":
        return os.environ.get("MOUNTS", "/: /dev/sda1\\n/home: /dev/sdz1\\n").encode()
    if command == "mount-ro":
        if words[1] == "/dev/sdz1":
            raise OSError("no such device")
        mounted = True
        return b""
    assert mounted, command
    if command in ("statns", "lstatns"):
        return numbers(path, command == "statns")
    if command == "lstatnslist":
        each = (numbers(os.path.join(path, one), False) for one in words[2].split())
        return b"".join(b"[0] = {{\\n" + one + b"}}\\n" for one in each)
    if command == "ls0":
        return b"".join(one + b"\\0" for one in os.listdir(os.fsencode(path)))
    if command == "readlink":
        return os.fsencode(os.readlink(path)) + b"\\n"
    if command == "download":
        if lie == "endless":
            while True:
                out.write(bytes(65536))
        if lie == "hangs":
            out.write(b"half of it")
            out.flush()
            time.sleep(600)
        if lie == "dies":
            out.write(b"half of it")
            out.flush()
            os._exit(1)
        return open(path, "rb").read()
    if command == "tar-out":
        argv = ["tar", "-C", path, "-cf", "-", "."]
        return subprocess.run(argv, check=True, capture_output=True).stdout
    raise OSError("unknown")

def char(found):
    return bytes([int(found[1], 16)]) if found[1] else ENDS.get(found[2], found[2])

for line in sys.stdin.buffer:
    words = [os.fsdecode(ESCAPE.sub(char, one) or bare) for one, bare in WORD.findall(line)]
    if words[0] == "echo":
        out.write(words[1].encode() + b"\\n")
    else:
        try:
            out.write(said([words[0][1:], *words[1:]]))
        except OSError as exc:
            print(f"libguestfs: error: {{words[0][1:]}}: {{exc.strerror or exc}}", file=sys.stderr)
            sys.stderr.flush()
    out.flush()
"""


def backed_up(target, number, raw, parent=None, uuid=UUID):
    """A backup of what is in a raw file."""
    ident = IDENTS[number]
    with target.create(uuid, ident) as new:
        taken = disk(ident, parent)
        below = ["-B", taken.backing[0], "-F", taken.backing[1]] if parent else []
        qemu_img("convert", "-O", "qcow2", *below, str(raw), new.disk_path("vda"))
        with new.checksum_writer("vda") as file:
            file.add(checksum_blocks.zeros(0, SIZE))
        made = dataclasses.replace(disk(ident, parent, file.sha256), size_bytes=SIZE)
        new.finish(told([made]), XML)


@pytest.fixture
def tree(tmp_path):
    """What the guest has in its file system."""
    found = tmp_path / "tree"
    (found / "etc").mkdir(parents=True)
    (found / "etc/fstab").write_text("/dev/vda1 / ext4\n")
    (found / "etc/fstab").chmod(0o4644)
    (found / "etc/link").symlink_to("fstab")
    (found / "etc/out").symlink_to("/no\x1b]0;x\x07where")
    os.mkfifo(found / "etc/fifo")
    (found / "empty").touch()
    return found


@pytest.fixture
def target(tmp_path):
    folder = tmp_path / "target"
    folder.mkdir(mode=0o700)
    found = BackupTarget(str(folder))
    raw = tmp_path / "empty.raw"
    with open(raw, "wb") as file:
        file.truncate(SIZE)
    backed_up(found, 0, raw)
    backed_up(found, 1, raw, IDENTS[0])
    return found


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Where files go and libguestfs works."""
    monkeypatch.setattr(files, "OUTPUT_DIR", str(tmp_path / "state/got"))
    monkeypatch.setattr(files, "_SCRATCH", str(tmp_path / "state/looks"))
    return tmp_path / "state"


@pytest.fixture
def fish(tmp_path, tree, state, monkeypatch):
    """The guestfish of this file. What is set is in its environment."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/guestfish"
    program.write_text(GUESTFISH.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("TREE", str(tree))
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    return monkeypatch


def looked(target, path="/etc", backup="latest", filesystem=None):
    return files.list_files(target, FileQuery("web1", backup, path, filesystem), lambda done: None)


def got(target, path="/etc/fstab", dest=None, most=MIB, test=False, backup="latest"):
    wanted = FileQuery("web1", backup, path)
    return files.get(target, wanted, dest, most, test, lambda done: None)


def left(state):
    """What is anywhere below, but for locks."""
    found = [one for one in state.rglob("*") if one.is_file() and one.name != "folders.lock"]
    return found + list(state.glob("looks/look-*"))


def test_a_folder_is_told_and_the_chain_is_opened_read_only(fish, target, state, tmp_path):
    found = looked(target)
    assert (found.backup_id, found.guest) == (IDENTS[1], "web1")
    assert (found.omitted, found.missing) == (0, {})
    assert found.filesystems == {"/dev/sda1": "ext4", "/dev/sda2": "swap"}
    told_of = {one.name: (one.kind, one.mode, one.size_bytes, one.link) for one in found.files}
    assert told_of == {
        "fifo": ("fifo", "0644", 0, None), "fstab": ("file", "4644", 17, None),
        "link": ("link", "0777", 5, "fstab"),
        "out": ("link", "0777", 14, "/no\\x1b]0;x\\x07where"),
    }  # fmt: skip
    path = f"{target.folder.root}/{UUID}/{IDENTS[1]}/vda.qcow2"
    assert f"add {path} format:qcow2 readonly:true" in (tmp_path / "said").read_text()
    assert left(state) == []
    [one] = looked(target, "/etc/fstab").files
    assert (one.name, one.size_bytes) == ("fstab", 17)
    assert [one.name for one in looked(target, "/").files] == ["empty", "etc"]


NAMES = {
    b"\x1b[2J\x07bell": "\\x1b[2J\\x07bell",
    b"two\nlines": "two\\x0alines",
    b'it\'s "quoted" $(id) `id`': 'it\'s "quoted" $(id) `id`',
    b"not-utf8-\xff": "not-utf8-\\xff",
    "umlaut-ä".encode(): "umlaut-ä",
    "turned-\u202e".encode(): "turned-\\xe2\\x80\\xae",
    b"-rf": "-rf",
    b"back\\slash": "back\\x5cslash",
}


def test_names_that_a_guest_made_up_are_spelled_out(fish, target, tree):
    shutil.rmtree(tree / "etc")
    (tree / "etc").mkdir()
    for name in NAMES:
        Path(os.fsdecode(os.path.join(os.fsencode(tree / "etc"), name))).write_bytes(b"12345")
    found = looked(target)
    assert {one.name for one in found.files} == set(NAMES.values())
    assert {one.size_bytes for one in found.files} == {5}


def test_of_a_giant_folder_a_thousand_are_told(fish, target, tree):
    for number in range(1200):
        (tree / f"etc/{number:05}").touch()
    found = looked(target)
    assert (len(found.files), found.omitted) == (1000, 204)
    assert found.files[0].name == "00000"


def test_a_file_is_taken_out_for_root_alone(fish, target, state):
    found = got(target)
    assert (found.kind, found.size_bytes, found.backup_id) == ("file", 17, IDENTS[1])
    assert found.path == f"{state}/got/web1-2-fstab"
    one = os.stat(found.path)
    assert (stat.S_IMODE(one.st_mode), one.st_nlink, one.st_uid) == (0o600, 1, os.geteuid())
    assert stat.S_IMODE(os.stat(state / "got").st_mode) == 0o700
    assert Path(found.path).read_text() == "/dev/vda1 / ext4\n"
    assert got(target).path == f"{state}/got/web1-2-fstab.2"
    assert got(target, backup="1").path == f"{state}/got/web1-1-fstab"
    assert Path(got(target, "/etc/link").path).read_text() == "/dev/vda1 / ext4\n"
    assert Path(got(target, "/empty").path).read_bytes() == b""


def test_a_folder_is_taken_out_as_a_tar_file(fish, target, tree):
    (tree / "etc/sub").mkdir()
    (tree / "etc/sub/file").write_text("deep")
    found = got(target, "/etc")
    assert found.path.endswith("/web1-2-etc.tar") and found.kind == "folder"
    with tarfile.open(found.path) as archive:
        assert archive.extractfile("./sub/file").read() == b"deep"


def test_the_test_says_what_would_be_and_writes_nothing(fish, target, state):
    found = got(target, test=True)
    assert (found.kind, found.size_bytes, found.path) == ("file", 17, None)
    assert left(state) == []


def test_dest_is_where_nothing_is_and_the_folder_is_ours(fish, target, tmp_path):
    room = tmp_path / "room"
    room.mkdir(mode=0o700)
    assert got(target, dest=f"{room}/a").path == f"{room}/a"
    assert (room / "a").read_text() == "/dev/vda1 / ext4\n"
    (room / "link").symlink_to("b")
    (tmp_path / "way").symlink_to(room)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open/below").mkdir(mode=0o700)
    for dest, words in {
        f"{room}/a": "already exists",
        f"{room}/link": "already exists",
        f"{room}/": "must be the path of a new file",
        f"{room}/..": "must be the path of a new file",
        "a": "must be an absolute path",
        f"{tmp_path}/way/b": "dest contains a symbolic link",
        f"{room}/../room/b": "dest contains a symbolic link",
        f"{tmp_path}/open/b": "must belong to root",
        f"{tmp_path}/open/below/b": "other users can write to",
        f"{tmp_path}/none/b": "cannot use the folder",
    }.items():
        with pytest.raises((errors.InvalidInput, errors.AlreadyExists), match=words):
            got(target, dest=dest)
    assert sorted(os.listdir(room)) == ["a", "link"]


@pytest.mark.parametrize(("what", "words"), [("gone", "No such file"), ("a link", "Not a dir|Too")])
def test_a_folder_that_is_another_by_the_time_the_file_is_read(fish, target, tmp_path, what, words):
    """The appliance takes its time."""
    room = tmp_path / "room"
    room.mkdir(mode=0o700)

    def meanwhile(_done):
        if not (tmp_path / "elsewhere").exists():
            room.rename(tmp_path / "elsewhere")
            if what == "a link":
                room.symlink_to("elsewhere")

    with pytest.raises(errors.OperationFailed, match=f"^{room}: ({words})"):
        files.get(target, FileQuery("web1", "latest", "/empty"), f"{room}/a", MIB, False, meanwhile)
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="no such folder is another's to write to")
def test_where_no_file_can_be_without_a_name_it_is_said_what_to_do():
    place = files._Destination("/proc", ["a"])
    refused = pytest.raises(
        errors.Unsupported, match="/proc does not support unnamed files: choose de"
    )
    with refused, place.writing("/etc/fstab", MIB, lambda done: None):
        pytest.fail("it is written")


def test_how_far_it_is_is_told_and_the_room_is_looked_at_again(fish, target, state, monkeypatch):
    fish.setenv("LIE", "endless")
    monkeypatch.setattr(files, "_CHECK_BYTES", 4 * MIB)
    told = []

    def tell(done):
        told.append(done)
        if done > 8 * MIB:  # somebody else writes there, too
            monkeypatch.setattr(files, "RESERVED_BYTES", 2**60)

    with pytest.raises(errors.OperationFailed, match="are free at the destination"):
        files.get(target, FileQuery("web1", "latest", "/empty"), None, 64 * MIB, False, tell)
    told = [one for one in told if one]
    steps = [after - before for before, after in itertools.pairwise([0, *told])]
    assert len(steps) >= 2 and all(4 * MIB < one < 5 * MIB for one in steps)
    assert left(state) == []


def test_two_guests_of_one_name_are_told_apart_by_their_uuids(fish, target, tmp_path):
    """One that was removed and made anew."""
    backed_up(target, 0, tmp_path / "empty.raw", uuid=ANOTHER)
    uuids = ", ".join(sorted([UUID, ANOTHER]))
    words = f"several guests had the name web1: use one of the UUIDs {uuids}"
    with pytest.raises(errors.InvalidInput, match=words):
        looked(target)
    assert files.list_files(target, FileQuery(ANOTHER, "1", "/"), lambda done: None).guest == "web1"


def test_without_the_systems_own_file_system_nothing_is_told(fish, target, state):
    """One of its others that cannot be mounted is named, and the rest is told."""
    fish.setenv("SYSTEMS", "/dev/sda1: ext4\n/dev/sda2: xfs\n")
    fish.setenv("ROOTS", "/dev/sdz1\n")
    fish.setenv("MOUNTS", "/: /dev/sdz1\n/home: /dev/sda1\n")
    with pytest.raises(
        errors.OperationFailed, match=f"cannot read the files of {IDENTS[1]}: .*no "
    ):
        looked(target)
    assert left(state) == []


def test_two_of_one_dest_at_once_overwrite_nothing(fish, target, tmp_path, monkeypatch):
    room = tmp_path / "room"
    room.mkdir(mode=0o700)
    real = files._OutputFile.write

    def late(out, data):
        real(out, data)
        (room / "a").write_text("another's")

    monkeypatch.setattr(files._OutputFile, "write", late)
    with pytest.raises(errors.AlreadyExists, match="already exists"):
        got(target, dest=f"{room}/a")
    assert (room / "a").read_text() == "another's"
    assert os.listdir(room) == ["a"]


def test_what_has_no_content_and_what_is_not_there(fish, target, state):
    with pytest.raises(errors.InvalidInput, match="'/etc/fifo' is a fifo, only files and folders"):
        got(target, "/etc/fifo")
    with pytest.raises(errors.NotFound, match="'/etc/none' not found in the backup"):
        got(target, "/etc/none")
    with pytest.raises(errors.NotFound, match="not found in the backup"):
        looked(target, "/none")
    assert left(state) == []


def test_more_than_is_wanted_is_refused_whatever_was_told_of_it(fish, target, state):
    with pytest.raises(errors.InvalidInput, match="is larger than 10 B: increase max_size"):
        got(target, most=10)
    fish.setenv("LIE", "size:5")
    with pytest.raises(errors.InvalidInput, match="is larger than 10 B"):
        got(target, most=10)
    fish.setenv("LIE", "endless")
    with pytest.raises(errors.InvalidInput, match="is larger than 1 MiB"):
        got(target)
    with pytest.raises(errors.InvalidInput, match="is larger than 2 KiB"):
        got(target, "/etc", most=2048)
    assert left(state) == []


def test_a_file_that_does_not_come_whole_is_none(fish, target, state):
    fish.setenv("LIE", "dies")
    with pytest.raises(
        errors.OperationFailed, match=r"cannot read the files of .*: guestfish ended"
    ):
        got(target)
    assert left(state) == []


def test_a_full_folder_is_seen_before_it_is(fish, target, state, monkeypatch):
    monkeypatch.setattr(files, "RESERVED_BYTES", 2**60)
    with pytest.raises(errors.OperationFailed, match="are free at the destination"):
        got(target)
    assert left(state) == []


def _hanging(root):
    with contextlib.suppress(BaseException):
        got(BackupTarget(root))


def test_a_get_that_is_killed_leaves_nothing_and_holds_the_backup_until_then(fish, target, state):
    fish.setenv("LIE", "hangs")
    process = multiprocessing.get_context("fork").Process(
        target=_hanging, args=(target.folder.root,)
    )
    process.start()
    end = time.monotonic() + 180
    while not target.is_used(UUID, IDENTS[1]) and time.monotonic() < end:
        time.sleep(0.05)
    while not (state / "got").exists() and time.monotonic() < end:
        time.sleep(0.05)
    with target.lock(UUID):
        assert not target.remove(UUID, IDENTS[1])
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert [one for one in left(state) if "look-" not in str(one)] == []
    fish.delenv("LIE")
    assert got(target).path == f"{state}/got/web1-2-fstab"
    # and its folder of libguestfs' goes with the next look
    assert not list(state.glob("looks/look-*"))


def test_several_systems_or_none_are_named(fish, target):
    fish.setenv("SYSTEMS", "/dev/sda1: ext4\n/dev/sda2: xfs\n/dev/sda3: crypto_LUKS\n")
    words = r"no system found on .*; available: /dev/sda1 \(ext4\), /dev/sda2 \(xfs"
    with pytest.raises(errors.InvalidInput, match=words):
        looked(target)
    fish.setenv("ROOTS", "/dev/sda1\n/dev/sda2\n")
    with pytest.raises(errors.InvalidInput, match="2 systems found"):
        looked(target)
    fish.setenv("ROOTS", "/dev/sda1\n")
    assert looked(target).missing == {"/home": "libguestfs: mount-ro: no such device"}
    assert looked(target, filesystem="/dev/sda2").missing == {}
    with pytest.raises(
        errors.NotFound, match="no file system '/dev/sda9' found; available: /dev/sda1"
    ):
        looked(target, filesystem="/dev/sda9")
    fish.setenv("SYSTEMS", "/dev/sda: crypto_LUKS\n")
    with pytest.raises(errors.InvalidInput, match=r"no system found.*\(crypto_LUKS\)"):
        looked(target)


def test_a_file_at_the_target_that_names_another_is_opened_by_no_tool(fish, target, tmp_path):
    path = f"{target.folder.root}/{UUID}/{IDENTS[0]}/vda.qcow2"
    length = os.path.getsize(path)
    argv = ["rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", "/etc/shadow", path]
    qemu_img(*argv)
    os.truncate(path, length)
    with pytest.raises(errors.BadAnswer, match=r"vda.qcow2 of 000001\S+ has the backing file "):
        looked(target)
    assert not (tmp_path / "said").exists()


def test_without_libguestfs_it_is_said_what_to_install(target, state, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(errors.Unsupported, match="install libguestfs-tools"):
        looked(target)


@pytest.mark.parametrize(
    ("name", "backup", "error", "words"),
    [
        ("web2", "latest", errors.NotFound, "no backup of web2 found"),
        ("web1", "7", errors.NotFound, "no backup '7' of web1 found"),
    ],
)
def test_a_backup_that_is_not_there(fish, target, name, backup, error, words):
    with pytest.raises(error, match=words):
        files.list_files(target, FileQuery(name, backup, "/"), lambda done: None)


def test_one_that_is_not_good_is_not_looked_into(fish, target):
    os.unlink(f"{target.folder.root}/{UUID}/{IDENTS[0]}/vda.qcow2")
    with pytest.raises(errors.BadAnswer, match="is not good"):
        looked(target)


@pytest.fixture
def run(tmp_path, monkeypatch, fish, target):
    """Calls a verb of the runner, over the host's own functions."""
    pytest.importorskip("salt")
    from tests.functional.cloud import Fleet
    from tests.functional.conftest import REPOSITORY, load

    path = REPOSITORY / "_runners" / "virt_backup.py"
    spec = importlib.util.spec_from_file_location("runner", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fleet = Fleet(load("test:///default", lock=str(tmp_path / "lock")), tmp_path)
    fleet.__class__ = type("Cloud", (Fleet,), {
        "__enter__": lambda self: self, "__exit__": lambda self, *_: None,
    })  # fmt: skip
    vault = {"host": "hv1", "folder": target.folder.root}
    fleet.opts["virt"] = {"backup": {"targets": {"vault": vault}}}
    monkeypatch.setattr(module, "Fleet", lambda _opts: fleet)
    module.__opts__, module.__salt__ = {}, {}

    def call(verb, *arguments, **named):
        found = getattr(module, verb)(*arguments, **named)["data"]
        json.dumps(found)  # it is plain data
        return found

    return call


@pytest.mark.skipif(os.geteuid() != 0, reason="the folders of the host are root's")
def test_the_verbs_of_the_runner(run, tmp_path):
    room = tmp_path / "room"
    room.mkdir(mode=0o700)
    found = run("backup_ls", "web1", "/etc/")["web1"]
    assert found["comment"] == f"/etc of web1 has 4 items in {IDENTS[1]}"
    assert found["table"][2] == ["file", "4644", "17 B", "fstab"]
    shown = run("backup_get", "web1", "/etc/fstab", dest=f"{room}/a", test=True)["web1"]
    assert shown["result"] is None and not os.listdir(room)
    assert shown["comment"] == (
        f"/etc/fstab in {IDENTS[1]} is a file of 17 B: would extract it to {room}/a on hv1"
    )
    done = run("backup_get", "web1", "/etc/fstab", dest=f"{room}/a", backup=1)["web1"]
    assert done["changes"] == {"path": f"{room}/a"}
    assert done["comment"] == (
        f"extracted /etc/fstab from {IDENTS[0]} to {room}/a on hv1, 17 B; readable by root"
    )
    assert (room / "a").read_text() == "/dev/vda1 / ext4\n"
    for arguments, named, words in (
        (("etc",), {}, "path must be an absolute path in the guest, not 'etc'"),
        (("/a",), {"to": "valt"}, "unknown backup target 'valt'; known: vault"),
        (("/a",), {"max_size": "much"}, "max_size 'much' is not a positive size"),
        (("/a",), {"backup": True}, "backup must be a name or a number, not True"),
        (("/etc/fifo",), {}, "'/etc/fifo' is a fifo, only files and folders"),
    ):
        wrong = run("backup_get", "web1", *arguments, **named)
        assert wrong["retcode"] == 1 and words in str(wrong).replace("\\'", "'"), wrong


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("guestfish"), reason="no guestfish here")
def test_files_of_a_real_chain_by_the_real_libguestfs(tmp_path, tree, state, monkeypatch):
    """Emulated: /dev/kvm may be there and lead nowhere."""
    monkeypatch.setenv("LIBGUESTFS_BACKEND_SETTINGS", "force_tcg")
    (tree / "etc/two\nlines '\"\\ $x \x1b[2J").write_text("12345")
    (tree / "etc/link-in").symlink_to("/etc/fstab")
    raw = tmp_path / "disk.raw"
    with open(raw, "wb") as file:
        file.truncate(SIZE)
    mke2fs = shutil.which("mke2fs", path=f"{PATH}:/usr/sbin:/sbin")
    subprocess.run([mke2fs, "-q", "-t", "ext4", "-d", tree, raw], check=True)
    (tmp_path / "target").mkdir(mode=0o700)
    target = BackupTarget(str(tmp_path / "target"))
    backed_up(target, 0, raw)
    (tree / "new").write_text("of the second\n")
    debugfs = shutil.which("debugfs", path=f"{PATH}:/usr/sbin:/sbin")
    argv = [debugfs, "-w", "-R", f"write {tree}/new new", raw]
    subprocess.run(argv, check=True, capture_output=True)
    backed_up(target, 1, raw, IDENTS[0])
    before = {one: one.read_bytes() for one in Path(target.folder.root).rglob("*.qcow2")}
    found = looked(target)
    told_of = {one.name: (one.kind, one.size_bytes, one.link) for one in found.files}
    assert told_of == {
        "fifo": ("fifo", 0, None), "fstab": ("file", 17, None), "link": ("link", 5, "fstab"),
        "link-in": ("link", 10, "/etc/fstab"),
        "two\\x0alines '\"\\x5c $x \\x1b[2J": ("file", 5, None),
        "out": ("link", 14, "/no\\x1b]0;x\\x07where"),
    }  # fmt: skip
    assert found.filesystems == {"/dev/sda": "ext4"}
    assert Path(got(target, "/etc/link-in").path).read_text() == "/dev/vda1 / ext4\n"
    assert Path(got(target, "/new").path).read_text() == "of the second\n"
    with pytest.raises(errors.NotFound, match="not found in the backup"):
        got(target, "/new", backup="1")
    with tarfile.open(got(target, "/etc").path) as archive:
        assert archive.extractfile("./fstab").read() == b"/dev/vda1 / ext4\n"
    assert {one: one.read_bytes() for one in before} == before
    assert not list(state.glob("looks/look-*"))
