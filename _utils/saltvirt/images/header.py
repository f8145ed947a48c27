"""Parse the headers of image files before any tool opens them.

A qcow2 or VMDK file can refer to other files, which QEMU's tools open as root, so the references
are checked first. qcow2: https://www.qemu.org/docs/master/interop/qcow2.html
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.images import storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_QCOW2_V2_LENGTH = 72
_EXT_BACKING_FORMAT = 0xE2792ACA
_EXT_DATA_FILE = 0x44415441
_INCOMPATIBLE_DATA_FILE = 1 << 2
_INCOMPATIBLE_CORRUPT = 1 << 1
_AUTOCLEAR_BITMAPS = 1 << 0
_LUKS = 2  # of qcow2's ways to encrypt
_MAX_NAME_BYTES = 1023  # QEMU's own limit
_HEAD = 128 * 1024  # past the superblock of btrfs, the farthest signature
_VMDK_HEADER = 512
_VMDK_DESCRIPTOR = 20 * 512  # what QEMU reads of it to find a parent
_VMDK_WHOLE = re.compile(rb'createType="(?:monolithicSparse|streamOptimized)"')
_VMDK_PARENT = re.compile(rb"parentCID=(?!ffffffff\b)", re.IGNORECASE)

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}
_VDI = struct.pack("<I", 0xBEDA107F)
# signatures of formats; that of VDI is at another offset
_FORMATS = (
    (b"QFI\xfb", "qcow2"),
    (b"KDMV", "vmdk"),
    (b"COWD", "vmdk"),
    (b"# Disk Descriptor", "vmdk"),
    (b"QED\0", "qed"),
    (b"vhdxfile", "vhdx"),
    (b"conectix", "vpc"),
    (b"LUKS\xba\xbe", "luks"),
)
# (offset, signature) of partition tables and file systems on a raw disk
_DISK_SIGNS = (
    (510, b"\x55\xaa"),  # MBR, protective MBR of GPT, boot sectors
    (512, b"EFI PART"),
    (0, b"XFSB"),
    (0x10040, b"_BHRfS_M"),
    (0x438, b"\x53\xef"),  # ext2, 3, 4
    (512, b"LABELONE"),  # LVM
    (4096 - 10, b"SWAPSPACE2"),
)


@dataclass(frozen=True)
class Header:
    """The properties in an image's header. Names of other files are as stored."""

    format: str
    size_bytes: int | None = None
    backing: str | None = None
    backing_format: str | None = None
    data_file: str | None = None
    snapshots: int = 0
    bitmaps: bool = False
    encrypted: bool = False
    luks: bool = False
    corrupt: bool = False


def _extensions(head: bytes, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    while start + 8 <= min(end, len(head)):
        kind, length = struct.unpack_from(">II", head, start)
        if kind == 0:
            return
        yield kind, head[start + 8 : start + 8 + length]
        start += 8 + (length + 7) // 8 * 8


def _text(data: bytes, path: str) -> str:
    """A name in a header. QEMU reads it up to its first NUL, other programs might not."""
    data = data.rstrip(b"\0")
    if b"\0" in data:
        raise errors.ImageError(f"{path} refers to a name that contains a NUL: refused")
    return data.decode("utf-8", "surrogateescape")


def _qcow2(head: bytes, path: str) -> Header:
    if len(head) < _QCOW2_V2_LENGTH:
        raise errors.ImageError(f"{path} ends within its qcow2 header")
    version, offset, length, bits, size, crypt = struct.unpack_from(">IQIIQI", head, 4)
    if version == 1:  # which has the name in the same place, and no word of its format
        name = head[offset : offset + min(length, _MAX_NAME_BYTES)]
        return Header("qcow", size, _text(name, path) if offset else None)
    if version not in (2, 3) or not 9 <= bits <= 21 or length > _MAX_NAME_BYTES:
        raise errors.ImageError(f"{path} has a damaged qcow2 header")
    features, autoclear, header_length = 0, 0, _QCOW2_V2_LENGTH
    if version == 3:
        if len(head) < 104:
            raise errors.ImageError(f"{path} ends within its qcow2 header")
        features, _, autoclear = struct.unpack_from(">QQQ", head, 72)
        header_length = struct.unpack_from(">I", head, 100)[0]
    if offset + length > len(head):
        raise errors.ImageError(f"{path} has a damaged qcow2 header")
    extensions = dict(_extensions(head, header_length, min(offset or len(head), 1 << bits)))
    data_file = None
    if features & _INCOMPATIBLE_DATA_FILE:
        data_file = _text(extensions.get(_EXT_DATA_FILE, b""), path) or "?"
    kind = extensions.get(_EXT_BACKING_FORMAT)
    return Header(
        format="qcow2",
        size_bytes=size,
        backing=_text(head[offset : offset + length], path) if offset else None,
        backing_format=_text(kind, path) if kind else None,
        data_file=data_file,
        snapshots=struct.unpack_from(">I", head, 60)[0],
        bitmaps=bool(autoclear & _AUTOCLEAR_BITMAPS),
        encrypted=bool(crypt),
        luks=crypt == _LUKS,
        corrupt=bool(features & _INCOMPATIBLE_CORRUPT),
    )


def _vmdk(head: bytes, path: str) -> Header:
    """The Header of a VMDK that QEMU reads from this one file only, whatever else is in it.

    QEMU (block/vmdk.c) follows the descriptor's extents, which may name any file, if the capacity
    is 0, and a parent that is named within ten KiB after the first sector. It uses the first
    ``createType`` that it finds, regardless of the character before it.
    """
    if len(head) < _VMDK_HEADER:
        raise errors.ImageError(f"{path} ends within its VMDK header")
    version, _, capacity, _, start, length = struct.unpack_from("<IIQQQQ", head, 4)
    ranges = [(512, 512 + _VMDK_DESCRIPTOR), (start * 512, (start + length) * 512)]
    if not capacity or version > 3 or ranges[1][1] > _HEAD:
        raise errors.ImageError(f"{path} is a VMDK of several files: convert it to qcow2 first")
    texts = [head[first:last] for first, last in ranges]
    if not any(b"createType" in text for text in texts):
        raise errors.ImageError(f"{path} is a VMDK without a descriptor: convert it to qcow2 first")
    for text in texts:
        if b"parentFileNameHint" in text or _VMDK_PARENT.search(text):
            raise errors.ImageError(f"{path} is a VMDK with a parent: convert it to qcow2 first")
        if text.count(b"createType") != len(_VMDK_WHOLE.findall(text)):
            raise errors.ImageError(f"{path} is a VMDK of several files: convert it to qcow2 first")
    return Header(format="vmdk", size_bytes=capacity * 512)


def _qed(head: bytes, path: str) -> Header:
    """QEMU's former format. https://www.qemu.org/docs/master/interop/qed_spec.html"""
    if len(head) < 64:
        raise errors.ImageError(f"{path} ends within its QED header")
    features, size, offset, length = struct.unpack_from("<Q24xQII", head, 16)
    named = head[offset : offset + length] if features & 1 else None
    if named is not None and not len(named) == length <= _MAX_NAME_BYTES:
        raise errors.ImageError(f"{path} has a damaged QED header")
    return Header("qed", size, _text(named, path) if named else None)


_READERS: dict[bytes, Callable[[bytes, str], Header]] = {
    b"QFI\xfb": _qcow2,
    b"KDMV": _vmdk,
    b"QED\0": _qed,
    b"vhdxfile": lambda _head, _path: Header(format="vhdx"),
    b"conectix": lambda _head, _path: Header(format="vpc"),
}


def detect(head: bytes, path: str) -> Header:
    """The Header for the first bytes of an image. Raises ImageError if it is no image."""
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise errors.ImageError(
                f"{path} is compressed with {name}, not a disk image: decompress it first"
            )
    reader = next(
        (candidate for sign, candidate in _READERS.items() if head.startswith(sign)), None
    )
    if reader:
        return reader(head, path)
    if head[64:68] == _VDI:
        return Header(format="vdi")
    if head.startswith(b"LUKS\xba\xbe"):
        raise errors.ImageError(f"{path} is an encrypted LUKS volume, which cannot be seeded")
    if any(head[offset : offset + len(sign)] == sign for offset, sign in _DISK_SIGNS):
        return Header(format="raw")
    if _is_cd(head):
        raise errors.ImageError(f"{path} is a CD image, not a disk image: attach it as a cdrom")
    raise errors.ImageError(
        f"{path} is not a disk image: it contains no known image format, partition table "
        "or file system"
    )


def read(path: str, format: str | None = None) -> Header:
    """The Header of the file or block device at ``path``.

    format: the declared format; the content is then not used to detect it, so that a raw disk to
    which a guest wrote another format's header stays a raw disk. Raises NotFound, ImageError.
    """
    try:
        head = storage.head(path, _HEAD)
    except FileNotFoundError:
        raise errors.NotFound(f"image {path} does not exist on this host") from None
    except OSError as exc:
        raise errors.ImageError(f"cannot read image {path}: {exc.strerror}") from exc
    if format == "raw":
        return Header(format="raw")
    header = detect(head, path)
    if format and header.format != format:
        raise errors.ImageError(f"{path} is {header.format}, not {format}")
    return header


def looks_like(path: str) -> str:
    """The format that the content suggests, ``raw`` by default. Checks nothing else."""
    head = storage.head(path, _HEAD)
    return next((name for sign, name in _FORMATS if head.startswith(sign)), None) or (
        "vdi" if head[64:68] == _VDI else "raw"
    )


def _is_cd(head: bytes) -> bool:
    return head[0x8001:0x8006] == b"CD001"


def is_cd(path: str) -> bool:
    """Return whether the file is a CD image."""
    return _is_cd(storage.head(path, _HEAD))
