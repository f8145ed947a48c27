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
    place: str
    kind: str
    source: str
    options: str = ""


def plain(text: str) -> str:
    """A field without its escapes."""
    return _ESCAPED.sub(lambda found: chr(int(found.group(1), 8)), text)


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
        before, _, after = row.partition(" - ")
        first, last = before.split(" "), after.split(" ")
        if len(first) > 4 and len(last) > 1:
            fields = (first[2], plain(first[3]), plain(first[4]), last[0], plain(last[1]))
            yield Mount(*fields, last[2] if len(last) > 2 else "")


def is_fuse(kind: str) -> bool:
    """Whether a file system is one whose source is but a name."""
    return kind == "fuse" or kind.startswith("fuse.")


def of(there: Iterable[Mount], path: str) -> Mount | None:
    """The Mount that shows a path; None without one."""
    found = None
    for mount in there:
        inside = f"{path}/".startswith(f"{mount.place.rstrip('/')}/")
        if inside and (found is None or len(mount.place) >= len(found.place)):
            found = mount
    return found


def to_mount(path: str = "/etc/fstab", by_hand: bool = True) -> Iterator[str]:
    """The mount points of an fstab. by_hand: also those that only the operator mounts."""
    for line in lines(path):
        parts = line.split()
        if len(parts) > 1 and parts[1].startswith("/") and not line.lstrip().startswith("#"):
            options = parts[3].split(",") if len(parts) > 3 else []
            if by_hand or "noauto" not in options or "x-systemd.automount" in options:
                yield os.path.normpath(plain(parts[1]))
