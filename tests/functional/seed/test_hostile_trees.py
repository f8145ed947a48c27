"""Hostile file systems of guests: at each place that seeding reads or writes lies what should not.

Nothing outside of the guest's tree changes, nothing hangs, nothing stays open or mounted. What is
refused is refused in one line, and the tree is as it was, or the line says that it is not.
"""

import contextlib
import gc
import os
import pathlib
import random
import re
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import zlib
from itertools import chain

import pytest

from saltvirt import errors, seed
from saltvirt.seed import backends, guest, keys, mounted
from saltvirt.seed.tree import DirTree
from saltvirt.system import paths
from tests.functional.hostile import ESCAPES, only
from tests.functional.seed.test_cloudinit import NICS
from tests.functional.seed.test_seed import (
    BY_MANAGER,
    IFUPDOWN,
    MANAGER,
    MIB,
    NETPLAN,
    NETWORKD,
    left_behind,
    system,
)
from tests.functional.seed.test_seed_hostile import content

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="special files and mounts: root")

MORE = {
    "etc/selinux/config": "SELINUX=enforcing\n",
    "etc/sysconfig/network": "HOSTNAME=image\n",
    "var/lib/dbus/machine-id": "0123456789abcdef0123456789abcdef\n",
}
SYSTEMS = {"networkd": NETWORKD, "ifupdown": IFUPDOWN, "netplan": NETPLAN,
           "netplan, NetworkManager": BY_MANAGER, "NetworkManager": MANAGER}  # fmt: skip
PART = "the guest is partially seeded"


def tree_of(root, name, minion=True):
    """A system with all that seeding looks at."""
    system(root)
    for path, text in {**MORE, **SYSTEMS[name]}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    if not minion:
        (root / "usr/bin/salt-minion").unlink()
    return root


class Told(DirTree):
    """A tree that keeps which of its places were asked for."""

    def __init__(self, root):
        super().__init__(root)
        self.places = set()

    def _walk(self, path, **options):
        self.places.add(path)
        return super()._walk(path, **options)


@pytest.fixture(scope="module")
def pair():
    return keys.generate()


def wish(pair, **more):
    return seed.SeedData(
        "web1", *pair, master="10.0.0.1", hostname="web1", nics=NICS, install="boot",
        bootstrap=lambda: "#!/bin/sh\n", **more,
    )  # fmt: skip


def places(folder, pair, name, minion=True):
    """Each path that seeding asks for, and each folder on the way."""
    with Told(tree_of(folder / "told", name, minion)) as tree:
        guest.seed(tree, wish(pair))
        found = {path for path in tree.places if path != "/"}
    shutil.rmtree(folder / "told")
    for path in list(found):
        found |= {str(one) for one in pathlib.PurePath(path).parents} - {"/"}
    return sorted(found)


# -- what lies there ----------------------------------------------------------------------


def link(to):
    return lambda path, host: path.symlink_to(to.format(host=host, name=path.name))


def a_socket(path, _host):
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


def device(kind, major, minor):
    return lambda path, _host: os.mknod(path, kind | 0o666, os.makedev(major, minor))


def folder_with(*names):
    def make(path, _host):
        path.mkdir()
        for name in names:
            (path / name).write_bytes(b"x")

    return make


def sparse(path, _host):
    with open(path, "wb") as file:
        file.truncate(2**40)


def noise(path, _host):
    path.write_bytes(bytes(range(256)) * 4000 + ESCAPES.encode() + b"\n127.0.1.1 \\1\\g<9>\n" * 3)


ODD_NAMES = ("a\nb.yaml", "ssh_host_\n..", "ssh_host_\x1b[2J", b"\xff\xfe.conf".decode(
    "utf-8", "surrogateescape"), "x" * 255, "-rf", " .yaml")  # fmt: skip

KINDS = {
    "a link to the host": link("{host}/etc/{name}"),
    "a link to a folder of the host": link("{host}/etc"),
    "a link up to the host": link("../" * 40 + "{host}/etc/{name}"),
    "a link to the host's own memory": link("/proc/self/root{host}/etc/{name}"),
    "a link to /": link("/"),
    "a link to its folder": link("."),
    "a link to above": link(".."),
    "a circle": link("{name}"),
    "a circle through its folder": link("../../../etc/../etc/./{name}"),
    "a link to nowhere": link("/not/there/at/all"),
    "a link to an endless name": link("x" * 300),
    "a link of 4,000 parts": link("a/../" * 700 + "x"),
    "a FIFO": lambda path, _host: os.mkfifo(path),
    "a socket": a_socket,
    "/dev/zero": device(stat.S_IFCHR, 1, 5),
    "a block device": device(stat.S_IFBLK, 7, 250),
    "a folder": folder_with(),
    "a full folder": folder_with("a.conf", "b.yaml", "ssh_host_key"),
    "names nobody expects": folder_with(*ODD_NAMES),
    "an empty file": lambda path, _host: path.write_bytes(b""),
    "1 TiB of nothing": sparse,
    "noise": noise,
}


def put(root, place, kind, host):
    path = root / place.lstrip("/")
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    KINDS[kind](path, host)


def state(root):
    """All that is in a tree: kinds, sizes, targets, and the texts of small files."""
    found = {}
    for top, names, files in os.walk(root):
        for name in names + files:
            path = os.path.join(top, name)
            mode, size = (one := os.lstat(path)).st_mode, one.st_size
            text = os.readlink(path) if stat.S_ISLNK(mode) else None
            if stat.S_ISREG(mode) and size < 2**21:
                text = pathlib.Path(path).read_bytes()
            found[path] = (mode, size if stat.S_ISREG(mode) else None, text)
    return found


@pytest.fixture(autouse=True)
def _collected():
    """What others left open is closed before files are counted."""
    gc.collect()


def open_files():
    return len(os.listdir("/proc/self/fd"))


def judge(run, before, after):
    """Runs it; the error that was said. Whatever was refused is as it was, or is said not to be."""
    files = open_files()
    try:
        run()
    except errors.SeedFailed as exc:
        said = str(exc)
        assert said.isprintable(), repr(said)
        assert len(said) < 1000
        assert open_files() == files, said
        assert after() == before or PART in said, said
        return said
    assert open_files() == files
    return None


@pytest.fixture(scope="module")
def quick():
    """A folder in memory: many trees are made."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="trees-") as folder:
        yield pathlib.Path(folder)


@pytest.fixture(scope="module")
def made(quick, pair):
    """name of a system: (its tree, its places)."""
    return {name: (tree_of(quick / name, name), places(quick, pair, name)) for name in SYSTEMS}


QUICK_KINDS = [
    "a link to the host", "a link up to the host", "a link to its folder", "a circle",
    "a link to nowhere", "a FIFO", "/dev/zero", "a full folder", "names nobody expects",
    "1 TiB of nothing", "noise",
]  # fmt: skip


@pytest.mark.parametrize("kind", only(*QUICK_KINDS, of=KINDS))
@pytest.mark.parametrize("name", only("ifupdown", of=SYSTEMS))
def test_each_place_of_a_folder(tmp_path, quick, made, pair, name, kind):
    host = system(tmp_path / "host")
    data, before, root = wish(pair), content(host), quick / "root"
    for place in made[name][1]:
        # no file of it is ever written in its place: the copy shares them
        shutil.copytree(made[name][0], root, symlinks=True, copy_function=os.link)
        put(root, place, kind, host)
        said = judge(lambda: seed.apply(str(root), None, data), state(root), lambda: state(root))
        assert content(host) == before, place
        if said is None:
            with DirTree(root) as tree:
                assert tree.read("/etc/hostname") == b"web1\n", place
                assert tree.read("/etc/salt/minion_id") == b"web1", place
        shutil.rmtree(root)


# -- a disk -------------------------------------------------------------------------------

MAKERS = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "xfs": ["mkfs.xfs", "-q"],
    "btrfs": ["mkfs.btrfs", "-q"],
}
FILL = 'mount -o loop "$1" "$2" && cp -a "$3/." "$2" && { eval "$4"; umount "$2"; }'


def part_of(tmp_path, root, kind="ext4", more="", mib=64, options=()):
    """A raw file that is one file system with what is in ``root``. more: commands that run there,
    in ``$2``."""
    part, at = tmp_path / "part", tmp_path / "at"
    at.mkdir()
    with open(part, "wb") as file:
        file.truncate((320 if kind == "xfs" else 128 if kind == "btrfs" else mib) * MIB)
    subprocess.run([*MAKERS[kind], *options, part], check=True)
    if kind == "ext4" and not more:
        subprocess.run([*MAKERS[kind], *options, "-d", root, part], check=True)
    else:
        argv = ["unshare", "--mount", "sh", "-ec", FILL, "sh", part, at, root, more]
        subprocess.run(argv, check=True)
    return part


@pytest.fixture
def shown(tmp_path, monkeypatch, pair):
    """Seeds a raw disk; what is said. Nothing is left: no mount, process, folder or open file."""
    monkeypatch.setattr(paths, "RUN", str(tmp_path / "run"))
    fine = wish(pair)

    def seeded(disk, backend, format="raw"):
        said = judge(lambda: seed.apply(str(disk), format, fine, backend), None, lambda: None)
        assert left_behind(disk) == []
        return said

    return seeded


def is_seeded(disk, format="raw"):
    with backends._shown(str(disk), format, "fuse", False) as tree:
        return tree.read("/etc/hostname") == b"web1\n"


BACKENDS = only("fuse", of=["fuse", "libguestfs"])


def longest_link(root):
    """Bytes of the longest target of a link below."""
    found = [os.path.join(at, name) for at, *both in os.walk(root) for name in chain(*both)]
    links = [os.fsencode(os.readlink(path)) for path in found if os.path.islink(path)]
    return max(map(len, links), default=0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", only("ext4", of=MAKERS))
@pytest.mark.parametrize(
    "place",
    only(
        "/etc/hosts",
        "/etc/salt",
        of=[
            "/etc/hosts",
            "/etc/hostname",
            "/etc/salt",
            "/etc/salt/minion",
            "/etc/ssh",
            "/etc",
            "/usr",
        ],
    ),
)
def test_what_lies_on_a_disk(tmp_path, shown, place, kind, backend):
    """Each kind of thing at one place, one after the other: what is refused says which."""
    host = system(tmp_path / "host")
    before = content(host)
    whole = os.environ.get("SLOW") and backend == "fuse"  # an appliance takes its time
    options = ["-b", "4096"] if kind == "ext4" else []  # a link's target fits into a block
    rows = KINDS if whole else ["a circle", "a FIFO", "1 TiB of nothing", "a link to the host"]
    for number, name in enumerate(rows):
        folder = tmp_path / str(number)
        folder.mkdir()
        root = tree_of(folder / "tree", "ifupdown")
        put(root, place, name, host)
        if kind == "xfs" and longest_link(root) >= 1024:
            continue  # XFS has no such link
        part = part_of(folder, root, kind, options=options)
        said = shown(part, backend)
        assert content(host) == before
        assert said or is_seeded(part)
        shutil.rmtree(folder)


def changed(*argv, **how):
    def make(tmp_path, root):
        part = part_of(tmp_path, root, **how)
        if argv:
            subprocess.run([*argv, part], check=True, capture_output=True)
        return part

    return make


FULL = 'for n in 64 1; do dd if=/dev/zero of="$2/$n" bs=${n}k 2>/dev/null; sync; done || true'
CROWDED = 'i=0; while touch "$2/f$i" 2>/dev/null; do i=$((i+1)); done'


def flipped(kind, start, length, seed):
    """A superblock with some bits that are not its own."""

    def make(tmp_path, root):
        part = part_of(tmp_path, root, kind)
        some = random.Random(seed)
        with open(part, "r+b") as file:
            for _ in range(4):
                at = start + some.randrange(length)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1 << some.randrange(8)]))
        return part

    return make


def blank(*parts):
    """A disk with something at some places, and no more."""

    def make(tmp_path, _root):
        disk = tmp_path / "disk"
        with open(disk, "wb") as file:
            file.truncate(16 * MIB)
            for at, text in parts:
                file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
                file.write(text)
        return disk

    return make


def raid_member():
    """The superblock of a Linux RAID, version 1.2."""
    head = bytearray(256 + 2 * 2)
    struct.pack_into("<III", head, 0, 0xA92B4EFC, 1, 0)
    head[16:32] = bytes(range(16))
    struct.pack_into("<Q", head, 128, 2048)
    struct.pack_into("<Q", head, 144, 8)  # where it lies
    struct.pack_into("<I", head, 220, 2)  # so many members
    words = struct.unpack(f"<{len(head) // 4}I", head)
    total = sum(words)
    struct.pack_into("<I", head, 216, ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF)
    return bytes(head)


def copied(disk, part, at):
    argv = ["dd", f"if={part}", f"of={disk}", "bs=1M", f"seek={at}", "conv=notrunc,sparse"]
    subprocess.run(argv, check=True, capture_output=True)


def mbr(*entries):
    """Its partitions: (kind, first sector, sectors)."""
    head = bytearray(512)
    for number, (kind, start, size) in enumerate(entries):
        struct.pack_into("<BBBBBBBBII", head, 446 + 16 * number, 0, 0, 0, 0, kind, 0, 0, 0, start,
                         size)  # fmt: skip
    head[510:] = b"\x55\xaa"
    return bytes(head)


def overlapping(tmp_path, root):
    disk = tmp_path / "disk"
    whole = 64 * 2048
    entries = mbr((131, 2048, whole), (131, 2048, 100), (131, 4096, 4096), (131, 2050, whole - 2))
    disk.write_bytes(entries.ljust(66 * MIB, b"\0"))
    copied(disk, part_of(tmp_path, root), 1)
    return disk


def endless_chain(tmp_path, root):
    """Logical partitions of which the last is followed by the first."""
    disk = tmp_path / "disk"
    whole = 64 * 2048
    disk.write_bytes(mbr((131, 2048, whole), (5, 66 * 2048, 2048)).ljust(67 * MIB, b"\0"))
    with open(disk, "r+b") as file:
        file.seek(66 * MIB)
        file.write(mbr((131, 1, 10), (5, 0, 2048)))
    copied(disk, part_of(tmp_path, root), 1)
    return disk


def gpt(parts, entries=128):
    """A table with (first sector, sectors, name) and a checksum that fits; and its copy is none."""
    table = bytearray(entries * 128)
    for number, (start, size, name) in enumerate(parts):
        kind = bytes.fromhex("af3dc60f838472478e793d69d8477de4")
        own = struct.pack("<16sQ", b"own", number + 1)[:16]
        struct.pack_into("<16s16sQQQ72s", table, 128 * number, kind, own, start, start + size - 1,
                         0, name)  # fmt: skip
    first, last = 2 + len(table) // 512, 66 * 2048 - 34
    fields = [b"EFI PART", 0x10000, 92, 0, 0, 1, last + 33, first, last, b"disk", 2, entries, 128,
              zlib.crc32(table)]  # fmt: skip
    head = struct.pack("<8sIIIIQQQQ16sQIII", *fields)
    fields[3] = zlib.crc32(head)
    head = struct.pack("<8sIIIIQQQQ16sQIII", *fields)
    return mbr((0xEE, 1, 2**32 - 1)) + head.ljust(512, b"\0") + bytes(table)


def named(*names):
    """Partitions with names, of which the first has the system."""

    def make(tmp_path, root):
        parts = [(2048, 64 * 2048, names[0])]
        parts += [(65 * 2048 + n, 1, name) for n, name in enumerate(names[1:])]
        disk = tmp_path / "disk"
        disk.write_bytes(gpt(parts).ljust(66 * MIB, b"\0"))
        copied(disk, part_of(tmp_path, root), 1)
        return disk

    return make


def crowded(count):
    def make(tmp_path, root):
        disk = tmp_path / "disk"
        parts = [(4096 + n, 1, b"") for n in range(count)]
        disk.write_bytes(gpt(parts, count).ljust(66 * MIB, b"\0"))
        return disk

    return make


SEEDED = None
EITHER = ""  # whether this kernel bears it is its own affair
NAMES = [
    name.encode("utf-16-le", "surrogatepass")[:72]
    for name in (
        "a\nTYPE=ext4\nb",
        '"quoted"}',
        "\\",
        ESCAPES,
        "\ud800",
        "\udc00x",
        "\x00hidden",
        "x" * 36,
    )
]
DISKS = {
    "that makes a kernel panic at an error": (changed("tune2fs", "-e", "panic"), SEEDED),
    "without a free block": (changed(more=FULL), "is full|No space left"),
    "without a free inode": (changed(more=CROWDED, options=["-N", "96"]), "0 free inodes"),
    "that is read-only": (changed("tune2fs", "-O", "read-only"), "is read-only"),
    "marked with errors": (changed("debugfs", "-w", "-R", "ssv state 2"), EITHER),
    "with a flipped superblock, ext4": (flipped("ext4", 1024, 1024, 1), EITHER),
    **{f"with a flipped superblock, {kind}, {n}": (flipped(kind, start, length, n), EITHER)
       for kind, start, length in (("ext4", 1024, 300), ("xfs", 0, 264), ("btrfs", 65536, 1000))
       for n in range(2, 6)},
    "with a flipped label only, btrfs": (flipped("btrfs", 65536 + 299, 200, 1), EITHER),
    "encrypted": (blank((0, b"LUKS\xba\xbe\0\1".ljust(592, b"\0"))), "crypto_LUKS"),
    "of swap": (blank((0, b"\0"), (1024, struct.pack("<II", 1, 100)), (4086, b"SWAPSPACE2")),
                "swap|no file system"),
    "of a RAID": (blank((4096, raid_member())), "linux_raid_member|no file system"),
    "of nothing but noise": (blank((0, random.Random(1).randbytes(MIB))), "no file system"),
    "with partitions that overlap": (overlapping, SEEDED),
    "with a chain of partitions without end": (endless_chain, EITHER),
    "with names of partitions nobody expects": (named(*NAMES), SEEDED),
    "with 4,000 partitions": (crowded(4000), "partitions, more than"),
    "with 100,000 partitions": (crowded(100_000), "partitions|no file system"),
}  # fmt: skip
QUICK_DISKS = [name for name in DISKS if not name[-1].isdigit() and "100,000" not in name]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", only(*QUICK_DISKS, of=DISKS))
def test_a_disk(tmp_path, shown, name, backend):
    make, why = DISKS[name]
    if make is overlapping and backend == "libguestfs":
        why = EITHER  # it sees one system in two places, or the appliance's kernel none
    disk = make(tmp_path, tree_of(tmp_path / "tree", "ifupdown"))
    said = shown(disk, backend)
    if why is SEEDED or said is None:
        assert (said, why or SEEDED) == (None, None)
        assert is_seeded(disk)
    else:
        assert re.search(why, said), said


def test_an_error_in_a_guest_does_not_panic_the_host(tmp_path):
    """What a superblock asks for is overruled."""
    asked = changed("tune2fs", "-e", "panic")(tmp_path, tree_of(tmp_path / "tree", "ifupdown"))
    with (
        mounted.Space() as space,
        mounted._fuse(space, str(asked), "raw") as disk,
        mounted._mount(space, disk, mounted._partitions(space, disk)[0][0], False) as target,
    ):
        options = [line for line in pathlib.Path(f"/proc/{space._holder.pid}/mountinfo")
                   .read_text().splitlines() if f" {target} " in line]  # fmt: skip
    assert "errors=panic" not in options[0]


def test_a_host_whose_disk_is_full(tmp_path, shown):
    """The guest's file system has room, its image on this host has none: an error."""
    part = part_of(tmp_path, tree_of(tmp_path / "tree", "ifupdown"))
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "small", small], check=True)
    try:
        disk = small / "disk.qcow2"
        subprocess.run(["qemu-img", "convert", "-O", "qcow2", part, disk], check=True)
        subprocess.run(["dd", "if=/dev/zero", f"of={small}/fill"], check=False, capture_output=True)
        said = shown(disk, "fuse", format="qcow2")
        assert said
        assert PART in said, said
    finally:
        subprocess.run(["umount", small], check=True)
