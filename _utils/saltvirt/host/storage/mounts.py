"""What this machine has mounted, as the kernel says it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

TABLE = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")
# file systems on this machine's own memory or devices
LOCAL = {
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs"),
    *("nilfs2", "vfat", "exfat", "ntfs", "ntfs3", "tmpfs", "ramfs", "overlay", "devtmpfs"),
    *("iso9660", "udf", "squashfs"),
}


@dataclass(frozen=True)
class Mount:
    """number: of the device. root: which folder of the file system is shown at ``place``."""

    number: str
    root: str
    mount_point: str
    kind: str
    source: str
    options: str = ""


def unescape(text: str) -> str:
    """A field without its escapes."""
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), text)


def lines(path: str) -> list[str]:
    """The lines of a text file; none when it cannot be read. Only a line feed ends one: whoever may
    mount a FUSE chooses a name with any other sign for the end of a line, or for a space."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return file.read().removesuffix("\n").split("\n")
    except OSError:
        return []


def read(path: str = TABLE) -> list[Mount]:
    """The Mounts, the later ones above the earlier ones."""
    return list(parse(lines(path)))


def parse(rows: Iterable[str]) -> Iterator[Mount]:
    """The Mounts of the lines of a mountinfo file."""
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
    """Whether a file system is one whose source is but a name."""
    return kind == "fuse" or kind.startswith("fuse.")


def mount_of(mount_list: Iterable[Mount], path: str) -> Mount | None:
    """The Mount that shows a path; None without one."""
    best = None
    for mount in mount_list:
        inside = f"{path}/".startswith(f"{mount.mount_point.rstrip('/')}/")
        if inside and (best is None or len(mount.mount_point) >= len(best.mount_point)):
            best = mount
    return best


def to_mount(path: str = "/etc/fstab", by_hand: bool = True) -> Iterator[str]:
    """The mount points of an fstab. by_hand: also those that only the operator mounts."""
    for line in lines(path):
        parts = line.split()
        if len(parts) > 1 and parts[1].startswith("/") and not line.lstrip().startswith("#"):
            options = parts[3].split(",") if len(parts) > 3 else []
            if by_hand or "noauto" not in options or "x-systemd.automount" in options:
                yield os.path.normpath(unescape(parts[1]))
