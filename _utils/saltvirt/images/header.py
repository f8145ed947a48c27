"""Reads the headers of image files by ourselves, before any tool opens them.

A qcow2 or VMDK can name other files, which QEMU's tools open as root. So what a header
names is looked at first. qcow2: https://www.qemu.org/docs/master/interop/qcow2.html
"""

import os
import re
import stat
import struct
from dataclasses import dataclass

from saltvirt import errors

_QCOW2_V2_LENGTH = 72
_EXT_BACKING_FORMAT = 0xE2792ACA
_EXT_DATA_FILE = 0x44415441
_INCOMPATIBLE_DATA_FILE = 1 << 2
_INCOMPATIBLE_CORRUPT = 1 << 1
_LONGEST_NAME = 1023  # qcow2's own limit
_HEAD = 128 * 1024  # past the superblock of btrfs, the farthest signature

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}
# (offset, signature) of what makes a raw file a disk
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
    """What an image file says of itself. Names of other files as they stand in it."""

    format: str
    size_bytes: int | None = None
    backing: str | None = None
    backing_format: str | None = None
    data_file: str | None = None
    snapshots: int = 0
    encrypted: bool = False
    corrupt: bool = False


def _extensions(head, start, end):
    while start + 8 <= min(end, len(head)):
        kind, length = struct.unpack_from(">II", head, start)
        if kind == 0:
            return
        yield kind, head[start + 8 : start + 8 + length]
        start += 8 + (length + 7) // 8 * 8


def _text(data):
    return data.decode("utf-8", "surrogateescape")


def _qcow2(head, path):
    if len(head) < _QCOW2_V2_LENGTH:
        raise errors.ImageError(f"{path} ends inside its qcow2 header")
    version, offset, length, bits, size, crypt = struct.unpack_from(">IQIIQI", head, 4)
    if version not in (2, 3) or not 9 <= bits <= 21 or length > _LONGEST_NAME:
        raise errors.ImageError(f"{path} has a damaged qcow2 header")
    features, header_length = 0, _QCOW2_V2_LENGTH
    if version == 3:
        if len(head) < 104:
            raise errors.ImageError(f"{path} ends inside its qcow2 header")
        features = struct.unpack_from(">Q", head, 72)[0]
        header_length = struct.unpack_from(">I", head, 100)[0]
    if offset + length > len(head):
        raise errors.ImageError(f"{path} has a damaged qcow2 header")
    found = dict(_extensions(head, header_length, min(offset or len(head), 1 << bits)))
    data_file = None
    if features & _INCOMPATIBLE_DATA_FILE:
        data_file = _text(found.get(_EXT_DATA_FILE, b"")) or "?"
    return Header(
        format="qcow2",
        size_bytes=size,
        backing=_text(head[offset : offset + length]) if offset else None,
        backing_format=_text(found[_EXT_BACKING_FORMAT]) if _EXT_BACKING_FORMAT in found else None,
        data_file=data_file,
        snapshots=struct.unpack_from(">I", head, 60)[0],
        encrypted=bool(crypt),
        corrupt=bool(features & _INCOMPATIBLE_CORRUPT),
    )


def _vmdk(head, path):
    """A sparse VMDK whose descriptor names no file but itself."""
    start, length = struct.unpack_from("<QQ", head, 28)
    text = head[start * 512 : (start + length) * 512].decode("latin-1")
    kind = re.search(r'createType="([^"]+)"', text)
    if not kind or kind.group(1) not in ("monolithicSparse", "streamOptimized"):
        raise errors.ImageError(f"{path} is a VMDK in several files: convert it to qcow2 first")
    return Header(format="vmdk")


def detect(head, path):
    """The Header for the first bytes of an image. Raises ImageError for what is none."""
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise errors.ImageError(f"{path} is {name}-compressed, no disk image: unpack it first")
    if head.startswith(b"QFI\xfb"):
        return _qcow2(head, path)
    if head.startswith(b"KDMV"):
        return _vmdk(head, path)
    if head.startswith(b"vhdxfile"):
        return Header(format="vhdx")
    if head.startswith(b"conectix"):
        return Header(format="vpc")
    if head[64:68] == struct.pack("<I", 0xBEDA107F):
        return Header(format="vdi")
    if head.startswith(b"LUKS\xba\xbe"):
        raise errors.ImageError(f"{path} is an encrypted LUKS volume, which nobody can seed")
    if any(head[at : at + len(sign)] == sign for at, sign in _DISK_SIGNS):
        return Header(format="raw")
    if head[0x8001:0x8006] == b"CD001":
        raise errors.ImageError(f"{path} is a CD image, no disk image: attach it as a cdrom")
    raise errors.ImageError(
        f"{path} is no disk image: no known image format, partition table or file system in it"
    )


def read(path, format=None):
    """The Header of the file or block device at ``path``.

    format: the declared format; the file is then not looked at to find out, so that a raw
    disk into which a guest wrote another format's header stays a raw disk.
    Raises NotFound, ImageError.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
                raise errors.ImageError(f"{path} is neither a file nor a block device")
            head = file.read(_HEAD)
    except FileNotFoundError:
        raise errors.NotFound(f"image {path} does not exist on this host") from None
    except OSError as exc:
        raise errors.ImageError(f"cannot read image {path}: {exc.strerror}") from exc
    if format == "raw":
        return Header(format="raw")
    found = detect(head, path)
    if format and found.format != format:
        raise errors.ImageError(f"{path} is {found.format}, not {format}")
    return found
