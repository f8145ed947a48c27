"""Mounted file systems, as the kernel reports them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

TABLE = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")
# types of file systems on local devices or in memory
LOCAL = {
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs"),
    *("nilfs2", "vfat", "exfat", "ntfs", "ntfs3", "tmpfs", "ramfs", "overlay", "devtmpfs"),
    *("iso9660", "udf", "squashfs"),
}


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo.

    number: the device number. root: the folder of the file system that is visible at the mount
    point.
    """

    number: str
    root: str
    mount_point: str
    kind: str
    source: str
    options: str = ""


def unescape(text: str) -> str:
    """Decode the escapes of a field."""
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), text)


def lines(path: str) -> list[str]:
    """Return the lines of a text file; none if it cannot be read.

    Only a line feed ends a line: the name of a FUSE mount may contain any other line separator.
    """
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return file.read().removesuffix("\n").split("\n")
    except OSError:
        return []


def read(path: str = TABLE) -> list[Mount]:
    """Return the mounts in the order of the table; later ones cover earlier ones."""
    return list(parse(lines(path)))


def parse(rows: Iterable[str]) -> Iterator[Mount]:
    """Yield the Mounts from the lines of a mountinfo file."""
    for row in rows:
        prefix, _, suffix = row.partition(" - ")
        prefix_fields, suffix_fields = prefix.split(" "), suffix.split(" ")
        if len(prefix_fields) > 4 and len(suffix_fields) > 1:
            fields = (
                prefix_fields[2],
                unescape(prefix_fields[3]),
                unescape(prefix_fields[4]),
                suffix_fields[0],
                unescape(suffix_fields[1]),
            )
            yield Mount(*fields, suffix_fields[2] if len(suffix_fields) > 2 else "")


def is_fuse(kind: str) -> bool:
    """Return whether the type is FUSE, where the source is an arbitrary name."""
    return kind == "fuse" or kind.startswith("fuse.")


def mount_of(mount_list: Iterable[Mount], path: str) -> Mount | None:
    """Return the Mount that contains a path, or None."""
    best = None
    for mount in mount_list:
        inside = f"{path}/".startswith(f"{mount.mount_point.rstrip('/')}/")
        if inside and (best is None or len(mount.mount_point) >= len(best.mount_point)):
            best = mount
    return best


def to_mount(path: str = "/etc/fstab", by_hand: bool = True) -> Iterator[str]:
    """Yield the mount points of an fstab.

    by_hand: include mounts that only the operator mounts.
    """
    for line in lines(path):
        parts = line.split()
        if len(parts) > 1 and parts[1].startswith("/") and not line.lstrip().startswith("#"):
            options = parts[3].split(",") if len(parts) > 3 else []
            if by_hand or "noauto" not in options or "x-systemd.automount" in options:
                yield os.path.normpath(unescape(parts[1]))
