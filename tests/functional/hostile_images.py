"""Images as an attacker would make them, built in code: a table of (name, builder).

A builder gets the path of the image and a Bait, what it tries to have read, and makes the image.
"""

import ctypes
import json
import os
import select
import struct
import subprocess
import zlib
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1024**2
CANARY = b"CANARY-of-the-hypervisor-"
HUGE = 2**63 - 512


def qemu_img(*argv):
    done = subprocess.run(["qemu-img", *map(str, argv)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-300:]


@dataclass(frozen=True)
class Bait:
    """What nobody may read: ``file`` (absolute, elsewhere), ``beside`` (in the image's folder)."""

    file: Path
    beside: Path


class Watch:
    """Whether the kernel saw files opened, by whomever and in whichever namespace."""

    _OPEN, _ACCESS = 0x20, 0x1

    def __init__(self, *paths):
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for path in paths:
            flags = self._OPEN | self._ACCESS
            assert libc.inotify_add_watch(self._fd, os.fsencode(path), flags) > 0, path

    def __enter__(self):
        return self

    def __exit__(self, *_exc_info):
        self.seen = bool(select.select([self._fd], [], [], 0)[0])
        os.close(self._fd)


# -- qcow2 --------------------------------------------------------------------------------


@dataclass
class Qcow2:
    """A qcow2 header and what lies behind it."""

    version: int = 3
    backing: bytes | None = None
    backing_format: bytes | None = b"qcow2"
    backing_at: int | None = None
    backing_length: int | None = None
    bits: int = 16
    size: int = MIB
    crypt: int = 0
    l1_size: int = 1
    l1_at: int = 3 * 65536
    refcount_at: int = 65536
    refcount_clusters: int = 1
    snapshots: int = 0
    snapshots_at: int = 0
    incompatible: int = 0
    compatible: int = 0
    autoclear: int = 0
    order: int = 4
    header_length: int = 104
    extensions: list = field(default_factory=list)
    file_size: int = 5 * 65536
    more: dict = field(default_factory=dict)  # offset: bytes

    def bytes(self):
        """The first cluster."""
        parts = list(self.extensions)
        if self.backing is not None and self.backing_format is not None:
            parts.append((0xE2792ACA, self.backing_format))
        packed = b"".join(
            struct.pack(">II", kind, len(text)) + text.ljust((len(text) + 7) // 8 * 8, b"\0")
            for kind, text in parts
        )
        packed += bytes(8)
        head_length = 104 if self.version == 3 else 72
        at = self.backing_at
        if at is None:
            at = head_length + len(packed) if self.backing is not None else 0
        name = self.backing or b""
        length = len(name) if self.backing_length is None else self.backing_length
        head = b"QFI\xfb" + struct.pack(
            ">IQIIQIIQQIIQ", self.version, at, length, self.bits, self.size, self.crypt,
            self.l1_size, self.l1_at, self.refcount_at, self.refcount_clusters, self.snapshots,
            self.snapshots_at,
        )  # fmt: skip
        if self.version == 3:
            head += struct.pack(
                ">QQQII", self.incompatible, self.compatible, self.autoclear, self.order,
                self.header_length,
            )  # fmt: skip
        return head + packed + name

    def write(self, path):
        with open(path, "wb") as file:
            file.write(self.bytes())
            if self.refcount_at == 65536:
                file.seek(65536)
                file.write(struct.pack(">Q", 2 * 65536))
                file.seek(2 * 65536)
                file.write(struct.pack(">5H", *[1] * 5))
            for at, text in self.more.items():
                file.seek(at)
                file.write(text)
            file.truncate(max(self.file_size, file.seek(0, os.SEEK_END)))


def qcow2(**fields):
    def make(path, _bait):
        Qcow2(**fields).write(path)

    return make


def on(name, **fields):
    """A qcow2 on a backing file; in the name {file} and {beside} are the bait."""

    def make(path, bait):
        told = name.replace("{file}", str(bait.file)).replace("{beside}", str(bait.beside))
        Qcow2(backing=os.fsencode(told), **fields).write(path)

    return make


def data_file(name):
    def make(path, bait):
        told = name.replace("{file}", str(bait.file))
        Qcow2(incompatible=4, extensions=[(0x44415441, told.encode())]).write(path)

    return make


def itself(path, _bait):
    Qcow2(backing=path.name.encode()).write(path)


def each_other(path, _bait):
    other = path.with_name("other.qcow2")
    Qcow2(backing=other.name.encode()).write(path)
    Qcow2(backing=path.name.encode()).write(other)


def long_chain(path, _bait):
    for number in range(40):
        Qcow2(backing=f"part{number + 1}".encode()).write(path.with_name(f"part{number}"))
    Qcow2().write(path.with_name("part40"))
    Qcow2(backing=b"part0").write(path)


def by_link(path, bait):
    link = path.with_name("innocent")
    link.symlink_to(bait.file)
    Qcow2(backing=b"innocent", backing_format=b"raw").write(path)


def make_odd(kind, path):
    """Something at the path that is no file."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        os.mknod(path, 0o140600)
    elif kind == "device":
        os.mknod(path, 0o020600, os.makedev(1, 5))
    elif kind == "circle":
        path.symlink_to(path)


def backing_that_is(kind):
    """A backing file beside the image that is no file."""

    def make(path, bait):
        make_odd(kind, path.with_name("odd"))
        Qcow2(backing=b"odd", backing_format=b"raw").write(path)

    return make


def compressed_bomb(path, _bait):
    """All clusters of 1 TiB are the one compressed cluster of zeros that is there."""
    bits, cluster = 21, 2**21
    deflate = zlib.compressobj(9, zlib.DEFLATED, -12)
    block = deflate.compress(bytes([1]) * cluster) + deflate.flush()
    size = 2**40
    l2_entries = cluster // 8
    l1_size = size // (cluster * l2_entries)
    at, where = 4 * cluster, 5 * cluster
    sectors = (where % 512 + len(block) - 1) // 512
    entry = 1 << 62 | sectors << (62 - (bits - 8)) | where
    tables = {
        cluster: struct.pack(">Q", 2 * cluster),
        2 * cluster: struct.pack(">8H", *[1] * 8),
        3 * cluster: struct.pack(">Q", at) * l1_size,
        at: struct.pack(">Q", entry) * l2_entries,
        where: block,
    }
    Qcow2(
        bits=bits, size=size, l1_size=l1_size, l1_at=3 * cluster, refcount_at=cluster,
        file_size=7 * cluster, more=tables,
    ).write(path)  # fmt: skip


def snapshot_table(path, _bait):
    """Snapshots, of which QEMU bears 65,536, and whose names are what a terminal obeys."""
    name = b"\x1b[2J" * 100
    one = struct.pack(">QIHHIIQII", 3 * 65536, 1, 1, len(name), 0, 0, 0, 0, 16)
    one += struct.pack(">QQ", 0, MIB) + b"1" + name
    one = one.ljust((len(one) + 7) // 8 * 8, b"\0")
    count = 3_000
    Qcow2(snapshots=count, snapshots_at=4 * 65536, more={4 * 65536: one * count}).write(path)


def feature_names(path, _bait):
    """Unknown features, whose names the tool prints."""
    name = b"\x1b]0;pwned\x07\nroot:x:0:0".ljust(46, b"\0")
    Qcow2(incompatible=1 << 40, extensions=[(0x6803F857, struct.pack("BB", 0, 40) + name)]).write(
        path
    )


# -- the other formats --------------------------------------------------------------------


def created(format, *options, patch=None, size="1M"):
    """What qemu-img makes, with bytes of it replaced: {offset: bytes}, below 0 from the end."""

    def make(path, _bait):
        qemu_img("create", "-q", "-f", format, *options, path, size)
        with open(path, "r+b") as file:
            for at, text in (patch or {}).items():
                file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
                file.write(text)

    return make


def written(content, size=None):
    def make(path, bait):
        text = content(bait) if callable(content) else content
        path.write_bytes(text)
        if size is not None:
            os.truncate(path, size)

    return make


def vmdk_text(kind, extent):
    """A descriptor that lies in the file alone."""

    def content(bait):
        line = extent.replace("{file}", str(bait.file))
        return (
            (
                "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\n"
                f'createType="{kind}"\n{line}\nddb.adapterType = "ide"\n'
            )
            .encode()
            .ljust(4096, b"\0")
        )

    return written(content)


def vmdk_inside(kind, extent, capacity=2048, version=1, at=1, length=20, more=""):
    """A sparse extent whose descriptor says something else."""

    def make(path, bait):
        qemu_img("create", "-q", "-f", "vmdk", path, "1M")
        content = bytearray(path.read_bytes())
        text = (
            "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\n"
            f'createType="{kind}"\n{extent}\n{more}'
        )
        text = text.replace("{file}", str(bait.file))
        struct.pack_into("<I", content, 4, version)
        struct.pack_into("<Q", content, 12, capacity)
        struct.pack_into("<QQ", content, 28, at, length)
        content[512 : 512 + 10240] = text.encode().ljust(10240, b"\0")
        path.write_bytes(content)

    return make


def qed(name):
    def make(path, bait):
        told = name.replace("{file}", str(bait.file)).encode()
        head = struct.pack(
            "<4sIIIQQQQQII", b"QED\0", 65536, 4, 1, 1, 0, 0, 65536, MIB, 72, len(told)
        )
        path.write_bytes((head.ljust(72, b"\0") + told).ljust(8 * 65536, b"\0"))

    return make


def vpc_fixed(path, _bait):
    """A footer at the end alone, an MBR in front."""
    qemu_img("create", "-q", "-f", "vpc", "-o", "subformat=fixed", path, "1M")
    with open(path, "r+b") as file:
        file.seek(510)
        file.write(b"\x55\xaa")


def parallels(path, _bait):
    head = struct.pack("<16sIIIIIQI", b"WithouFreSpacExt", 2, 16, 63, 63, 2**31 - 1, HUGE, 1)
    path.write_bytes(head.ljust(65536, b"\0"))


def dmg(path, _bait):
    """Only its trailer tells; the MBR in front makes it a raw disk."""
    trailer = b"koly".ljust(512, b"\xff")
    path.write_bytes((bytes(510) + b"\x55\xaa").ljust(65536, b"\0") + trailer)


def outer(tool):
    def make(path, _bait):
        path.write_bytes(bytes(510) + b"\x55\xaa" + bytes(8 * MIB))
        with open(path, "rb") as source:
            packed = subprocess.run([tool, "-c"], stdin=source, capture_output=True, check=True)
        path.write_bytes(packed.stdout)

    return make


def tar(path, bait):
    folder = path.parent / "packed"
    folder.mkdir()
    (folder / "disk.raw").symlink_to(bait.file)
    subprocess.run(["tar", "-C", folder, "-cf", path, "disk.raw"], check=True)


def sparse(size, sign=True):
    def make(path, _bait):
        path.write_bytes(bytes(510) + (b"\x55\xaa" if sign else b"\0\0"))
        os.truncate(path, size)

    return make


def special(kind):
    """The image itself is no file."""

    def make(path, bait):
        make_odd(kind, path)
        if kind == "nowhere":
            path.symlink_to(path.parent / "is" / "not" / "there")
        elif kind == "descriptor":
            path.symlink_to("/proc/self/fd/0")
        elif kind == "memory":
            path.symlink_to("/proc/self/mem")

    return make


def json_name(**options):
    return "json:" + json.dumps(options)


DEEP = "json:" + '{"a":' * 195
BACKINGS = {
    "a path": "{file}",
    "up": "../../../../../../../../../../../{file}",
    "a file: address": "file:{file}",
    "two slashes": "//{file}",
    "json": json_name(driver="raw", file={"driver": "file", "filename": "{file}"}),
    "deep json": DEEP,
    "nbd": "nbd://127.0.0.1:10809/x",
    "nbd of old": "nbd:unix:/run/x.sock",
    "https": "https://127.0.0.1/x",
    "ssh": "ssh://127.0.0.1/etc/passwd",
    "fat": "fat:rw:/etc",
    "a blkdebug": "blkdebug::{file}",
    "a descriptor": "/proc/self/fd/0",
    "another's root": "/proc/1/root/etc/passwd",
    "a device": "/dev/vda",
    "a folder": "/etc",
    "nothing": "is-not-there",
    "escapes": "\x1b[2J\x1b]0;pwned\x07\nroot:x:0:0",
    "half a character": "\udcff\udcfe",
    "a comma": "x,file.driver=file",
    "a name too long": "x" * 300,
    "what is below a file": "{file}/x",
}  # fmt: skip

IMAGES = {
    **{f"qcow2 on {name}": on(value) for name, value in BACKINGS.items()},
    **{f"qcow2 on {name}, raw": on(BACKINGS[name], backing_format=b"raw")
       for name in ("a path", "up", "two slashes", "a device", "a folder", "a descriptor")},
    "qcow2 on the bait beside it, raw": on("{beside}", backing_format=b"raw"),
    "qcow2 on the bait beside it, undeclared": on("{beside}", backing_format=None),
    "qcow2 on a format of an address": on("{beside}", backing_format=b"nbd"),
    "qcow2 on a format with escapes": on("{beside}", backing_format=b"\x1b[2Jraw"),
    "qcow2 on a format of one byte more": on("{beside}", backing_format=b"raw\0\x1b"),
    **{f"qcow2 on a {kind}": backing_that_is(kind)
       for kind in ("fifo", "folder", "socket", "device", "circle")},
    "qcow2 on itself": itself,
    "qcow2 on one that is on it": each_other,
    "qcow2 on a long chain": long_chain,
    "qcow2 on a link": by_link,
    "qcow2 with a NUL in its backing name": qcow2(backing=b"base\0/etc/shadow"),
    "qcow2 with a backing name beyond its end": qcow2(backing=b"x", backing_at=2**40),
    "qcow2 with a backing name at 2^64": qcow2(backing=b"x", backing_at=2**64 - 1),
    "qcow2 with a backing name over all": qcow2(backing=b"x", backing_length=2**32 - 1),
    "qcow2 with an empty backing name": qcow2(backing=b""),
    "qcow2 with a backing name in its own header": qcow2(backing=b"x", backing_at=4),
    "qcow2 with a data file": data_file("{file}"),
    "qcow2 with a data file of json":
        data_file(json_name(driver="file", filename="{file}")),
    "qcow2 with a data file without name": qcow2(incompatible=4),
    "qcow2 with a data file beyond what we read": qcow2(
        bits=21, incompatible=4,
        extensions=[(0x12345678, bytes(200000)), (0x44415441, b"/etc/passwd")],
        l1_at=3 * 2**21, refcount_at=2**21, file_size=5 * 2**21),
    "qcow2 with an extension beyond its end": qcow2(
        extensions=[(0x12345678, b"")], more={104: b"\x12\x34\x56\x78" + b"\xff" * 4}),
    "qcow2 with feature names for a terminal": feature_names,
    "qcow2 that is encrypted": qcow2(crypt=1),
    "qcow2 with LUKS in it": qcow2(crypt=2),
    "qcow2 of version 1": qcow2(version=1),
    "qcow2 of version 2": qcow2(version=2, order=0),
    "qcow2 of version 99": qcow2(version=99),
    "qcow2 marked corrupt": qcow2(incompatible=2),
    "qcow2 marked dirty": qcow2(incompatible=1),
    "qcow2 of no size": qcow2(size=0, l1_size=0),
    "qcow2 of one byte": qcow2(size=1),
    "qcow2 of 777 bytes": qcow2(size=777),
    "qcow2 of 2^63 bytes": qcow2(size=2**63),
    "qcow2 of less than 2^63 bytes": qcow2(size=HUGE),
    "qcow2 of 2^64 - 1 bytes": qcow2(size=2**64 - 1),
    "qcow2 of 1 EiB": qcow2(bits=21, size=2**60, l1_size=2**21, l1_at=3 * 2**21, refcount_at=2**21,
                            file_size=16 * 2**21, more={2**21: struct.pack(">Q", 2**22),
                                                        2**22: struct.pack(">16H", *[1] * 16)}),
    "qcow2 with clusters of 2^31": qcow2(bits=31),
    "qcow2 with clusters of 2^0": qcow2(bits=0),
    "qcow2 with a huge L1 table": qcow2(l1_size=2**32 - 1),
    "qcow2 with an L1 table in its header": qcow2(l1_at=0),
    "qcow2 with an L1 table beyond all": qcow2(l1_at=2**63),
    "qcow2 with an L1 table not on a cluster": qcow2(l1_at=12345),
    "qcow2 with a huge refcount table": qcow2(refcount_clusters=2**32 - 1),
    "qcow2 with its refcounts beyond all": qcow2(refcount_at=2**62),
    "qcow2 with refcounts of 2^40 bits": qcow2(order=40),
    "qcow2 with a header length of 2^32": qcow2(header_length=2**32 - 1),
    "qcow2 with a header length of 0": qcow2(header_length=0),
    "qcow2 with many snapshots": qcow2(snapshots=2**32 - 1, snapshots_at=65536),
    "qcow2 with snapshots beyond its end": qcow2(snapshots=5, snapshots_at=2**62),
    "qcow2 with names of snapshots for a terminal": snapshot_table,
    "qcow2 that is a compressed bomb": compressed_bomb,
    "qcow2 that ends in its header": written(Qcow2().bytes()[:60]),
    "qcow2 of version 3 that ends in its header": written(Qcow2().bytes()[:90]),
    "qcow2 that ends behind its header": written(Qcow2().bytes()),
    "QED on a path": qed("{file}"),
    "QED on json": qed('json:{"driver":"raw","filename":"{file}"}'),
    "QED on a name of 100,000": qed("x" * 100_000),
    "QED on deep json": qed("json:" + "[" * 50_000),
    **{f"VMDK of text, {kind}": vmdk_text(kind, f'RW 2048 {word} "{{file}}"{end}')
       for kind, word, end in (("monolithicFlat", "FLAT", " 0"), ("vmfs", "VMFS", ""),
                               ("twoGbMaxExtentFlat", "FLAT", " 0"),
                               ("vmfsSparse", "VMFSSPARSE", ""),
                               ("twoGbMaxExtentSparse", "SPARSE", ""), ("fullDevice", "FLAT", " 0"),
                               ("monolithicSparse", "SPARSE", ""), ("seSparse", "SESPARSE", ""))},
    "VMDK of text on json":
        vmdk_text("monolithicFlat", 'RW 2048 FLAT "json:{\'driver\':\'file\'}" 0'),
    "VMDK flat inside": vmdk_inside("monolithicFlat", 'RW 2048 FLAT "{file}" 0', capacity=0),
    "VMDK flat beside a capacity": vmdk_inside("monolithicFlat", 'RW 2048 FLAT "{file}" 0'),
    "VMDK with a hint": vmdk_inside("monolithicSparse", "", more='parentFileNameHint="{file}"\n'),
    "VMDK of 2^63 sectors": vmdk_inside("monolithicSparse", "", capacity=2**63),
    "VMDK of 2^55 sectors": vmdk_inside("monolithicSparse", "", capacity=2**55),
    "VMDK of version 4": vmdk_inside("monolithicSparse", "", version=4),
    "VMDK with its text at 2^60": vmdk_inside("monolithicSparse", "", at=2**60),
    "VMDK with a text of 2^60": vmdk_inside("monolithicSparse", "", length=2**60),
    "VMDK of ESX": written(b"COWD" + struct.pack("<IIII", 1, 3, 2**31, 1) + bytes(65536)),
    "VMDK streamOptimized, its footer elsewhere": created(
        "vmdk", "-o", "subformat=streamOptimized", patch={56: b"\xff" * 8}),
    "VDI of 2^63 bytes": created("vdi", patch={368: struct.pack("<Q", 2**63)}),
    "VDI of 0 bytes": created("vdi", patch={368: bytes(8)}),
    "VDI with 2^29 blocks": created("vdi", patch={384: struct.pack("<I", 0x1FFFFF80)}),
    "VDI that is a difference": created("vdi", patch={76: struct.pack("<I", 4)}),
    "VDI with its blocks elsewhere": created("vdi", patch={340: b"\xff" * 8}),
    "VHDX without regions": created("vhdx", patch={0x30000: bytes(65536)}),
    "VHDX without headers": created("vhdx", patch={0x10000: bytes(0x20000)}),
    "VHDX of noise": created("vhdx", patch={0x10000: b"\xa5" * 0x40000}),
    "VPC of noise": created("vpc", patch={8: b"\xff" * 500}),
    "VPC with a huge table": created("vpc", patch={512 + 28: b"\x7f\xff\xff\xff"}),
    "VPC that is a difference": created("vpc", patch={60: b"\0\0\0\4"}),
    "VPC of fixed size, as raw": vpc_fixed,
    "Parallels": parallels,
    "Bochs": written(b"Bochs Virtual HD Image".ljust(32, b"\0") + b"Redolog\0" * 100),
    "cloop": written(b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop file=$0\n".ljust(128, b"\0")
                     + b"\xff" * 1000),
    "DMG behind an MBR": dmg,
    "LUKS": written(b"LUKS\xba\xbe\0\1" + b"x" * 5000),
    "LUKS 2": written(b"LUKS\xba\xbe\0\2" + b"x" * 5000),
    **{f"packed by {tool}": outer(tool) for tool in ("gzip", "xz", "bzip2")},
    "packed by zstd": written(b"\x28\xb5\x2f\xfd" + bytes(5000)),
    "packed by zip": written(b"PK\x03\x04" + bytes(5000)),
    "a tar with a link in it": tar,
    "a script": written(b"#!/bin/sh\nrm -rf /\n"),
    "nothing at all": written(b""),
    "one byte": written(b"Q"),
    "zeros": written(bytes(200_000)),
    "a CD": written(bytes(0x8001) + b"CD001" + bytes(5000)),
    "raw of 777 bytes": sparse(777),
    "raw of 1 TiB": sparse(2**40),
    "raw of 15 TiB": sparse(15 * 2**40),
    **{f"a {kind}": special(kind) for kind in
       ("fifo", "folder", "socket", "device", "circle", "nowhere", "descriptor", "memory")},
}  # fmt: skip
