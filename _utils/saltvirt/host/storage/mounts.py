"""What this machine has mounted, as the kernel says it."""

import os
from dataclasses import dataclass

TABLE = "/proc/self/mountinfo"
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


def plain(text):
    """A field without its escapes."""
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text


def lines(path):
    """The lines of a text file; none when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []


def read():
    """The Mounts, the later ones above the earlier ones."""
    found = []
    for line in lines(TABLE):
        before, _, after = line.partition(" - ")
        first, last = before.split(), after.split()
        found.append(
            Mount(
                first[2], plain(first[3]), plain(first[4]), last[0], plain(last[1]),
                last[2] if len(last) > 2 else "",
            )
        )  # fmt: skip
    return found


def of(there, path):
    """The Mount that shows a path; None without one."""
    found = None
    for mount in there:
        inside = f"{path}/".startswith(f"{mount.place.rstrip('/')}/")
        if inside and (found is None or len(mount.place) >= len(found.place)):
            found = mount
    return found


def to_mount(path="/etc/fstab"):
    """Where this machine mounts something when it starts."""
    for line in lines(path):
        parts = line.split()
        if len(parts) > 1 and parts[1].startswith("/") and not line.lstrip().startswith("#"):
            yield os.path.normpath(plain(parts[1]))
