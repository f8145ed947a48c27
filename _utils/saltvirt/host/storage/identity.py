"""Identity of files and devices, independent of their names."""

from __future__ import annotations

import contextlib
import os
import stat

from saltvirt.system import bounded_io

_DEVICES = "/sys/dev/block"
# identifies a file, device or volume: a path, or a tuple of a kind and an identifier
Key = str | tuple["str | int | Key", ...]


def real(path: str) -> str:
    """Return the path without symbolic links, or the path itself if it cannot be resolved."""
    return bounded_io.real(path)


def keys_of(path: str) -> frozenset[Key]:
    """Return the keys of a path on this host; two paths that share a key are the same object.

    The keys are the path with and without links, the file system with the inode (for bind mounts
    and hard links), and the number of a block device (for its names below /dev).
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
    """Return what a block device consists of.

    That is the file of a loop device, the devices of a logical volume or an array, or the disk of a
    partition.
    """
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
