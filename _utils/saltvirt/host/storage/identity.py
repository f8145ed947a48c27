"""What tells one file or device from another, by whatever name it is called."""

from __future__ import annotations

import contextlib
import os
import stat

from saltvirt.host.storage import bounded_io

_DEVICES = "/sys/dev/block"
# what a file, a device or a volume is found by: a path, or a kind with what tells it from others
Key = str | tuple["str | int | Key", ...]


def real(path: str) -> str:
    """The path without links; as it is where it cannot be followed."""
    return bounded_io.real(path)


def keys_of(path: str) -> frozenset[Key]:
    """The keys of a path of this host: two paths that share one are the same thing.

    The path, also without links; the file system and the inode (bind mounts, hard links); the
    number of a block device (its many names below /dev).
    """
    keys: set[Key] = {real(path), os.path.normpath(path)}
    with contextlib.suppress(OSError, ValueError):
        status = bounded_io.stat(path)
        if stat.S_ISBLK(status.st_mode):
            keys.add(("device", status.st_rdev))
        else:
            keys.add(("file", status.st_dev, status.st_ino))
    return frozenset(keys)


def underlying_paths(path: str) -> list[str]:
    """The paths of what a block device is made of: a loop device's file, a logical volume's or
    an array's parts, a partition's disk."""
    try:
        status = bounded_io.stat(path)
    except (OSError, ValueError):
        return []
    if not stat.S_ISBLK(status.st_mode):
        return []
    device = f"{_DEVICES}/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    underlying = []
    with contextlib.suppress(OSError):
        underlying += [f"/dev/{name.replace('!', '/')}" for name in os.listdir(f"{device}/slaves")]
    with contextlib.suppress(OSError), open(f"{device}/loop/backing_file", "rb") as file:
        underlying.append(os.fsdecode(file.read().removesuffix(b"\n")))
    if os.path.exists(f"{device}/partition"):
        disk = os.path.basename(os.path.dirname(os.path.realpath(device)))
        underlying.append(f"/dev/{disk.replace('!', '/')}")
    return underlying
