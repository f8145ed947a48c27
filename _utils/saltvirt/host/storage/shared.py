"""Whether a path can be reached by this host alone: only what is proven counts.

A file system of the network, a device of a storage network, a part of a file system whose rest
this host does not see: all of that other hosts may have, too.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.host.storage import bounded, identity, mounts
from saltvirt.wire import Fact, Mark

_DEVICES = "/sys/dev/block"
# how the kernel names what a disk of this machine is attached by; what leads out of it
_OWN = ("/ata", "/mmc", "/usb", "/host")
# of a virtual machine: who gives it such a disk may give it to others, too
_GIVEN = ("/virtio", "/vbd-")
_FOREIGN = ("/session", "/rport-", "/end_device-", "/fc_", "fabrics")
_MEMORY = ("ram", "zram", "zd")


@dataclass(frozen=True)
class FileIdentity(Fact):
    """What a path is, for hosts that may know it by another name.

    names: of what a server has. inode: of a file. ids: of a device, alike on all its hosts.
    """

    path: str
    inode: Mark | None = None
    ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def as_data(found: Mapping[str, FileIdentity]) -> dict[str, dict[str, Any]]:
    """As the runner hands them to other hosts, by path."""
    return {path: one.to_answer() for path, one in found.items()}


def why(path: str) -> str | None:
    """Why other hosts may have what is at the path, in words; None when it is this host's own."""
    here = identity.real(path)
    try:
        seen = bounded.stat(here)
    except OSError:
        here, seen = os.path.dirname(here), None
    if seen is not None and stat.S_ISBLK(seen.st_mode):
        return None if _own_device(seen.st_rdev) else "its device may be other hosts', too"
    return _of_mount(here)


def place(path: str) -> FileIdentity:
    """The FileIdentity of a path of this host."""
    here = identity.real(path)
    try:
        seen = bounded.stat(here)
    except OSError:
        return FileIdentity(here)
    if stat.S_ISBLK(seen.st_mode):
        return FileIdentity(here, ids=tuple(sorted(_ids(seen.st_rdev))))
    return FileIdentity(here, seen.st_ino)


def _of_mount(path: str) -> str | None:
    there = mounts.read()
    mount = mounts.of(there, path)
    if mount is None:
        return "it is not known where it is mounted from"
    if mount.kind not in mounts.LOCAL:
        return f"{mount.kind} at {mount.place}"
    if not _whole(mount, there):
        return f"{mount.place} is a part of a file system that this host does not see whole"
    number = _device_of(mount)
    if number is not None and not _own_device(number):
        return f"the device of {mount.place} may be other hosts', too"
    return None


def _whole(mount: mounts.Mount, there: Sequence[mounts.Mount]) -> bool:
    """Whether the file system, and not only a folder of it, is mounted here. What is mounted at /
    is the system's own, also where it is a folder of a larger one."""
    if "/" in (mount.root, mount.place) or f"subvol={mount.root}" in mount.options.split(","):
        return True
    roots = {one.root.rstrip("/") for one in there if one.number == mount.number}
    return any(f"{mount.root}/".startswith(f"{root}/") for root in roots - {mount.root})


def _device_of(mount: mounts.Mount) -> int | None:
    """The number of the device below a file system; None where it has none."""
    try:
        seen = bounded.stat(mount.source) if mount.source.startswith("/") else None
        if seen and stat.S_ISBLK(seen.st_mode):
            return seen.st_rdev
    except OSError:
        pass
    major, _, minor = mount.number.partition(":")
    return os.makedev(int(major), int(minor)) if int(major) else None


def _folder(number: int) -> str:
    return f"{_DEVICES}/{os.major(number)}:{os.minor(number)}"


def _read(*parts: str) -> str:
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _own_device(number: int) -> bool:
    """Whether a block device, and all that it is made of, is this machine's own."""
    folder = _folder(number)
    if _read(folder, "dm/uuid").startswith("mpath-"):
        return False
    place = os.path.realpath(folder)
    name = os.path.basename(place)
    parts = os.listdir(f"{folder}/slaves") if os.path.isdir(f"{folder}/slaves") else []
    if parts:
        return all(_own_path(f"/dev/{part.replace('!', '/')}") for part in parts)
    backing = _read(folder, "loop/backing_file")
    if backing:
        return why(backing) is None
    if "/virtual/" in place:
        return name.rstrip("0123456789") in _MEMORY or _own_nvme(place)
    return _is_attached_here(place)


def _is_attached_here(place: str) -> bool:
    """Whether a disk is attached to this machine alone, by its folder."""
    if any(sign in place for sign in _FOREIGN):
        return False
    if any(sign in place for sign in _GIVEN):
        return _whole_disk(place) in _of_the_system()
    return any(sign in place for sign in _OWN) or "/nvme" in place


def _whole_disk(place: str) -> str:
    """The folder of a disk, for that of one of its partitions."""
    return os.path.dirname(place) if os.path.exists(f"{place}/partition") else place


def _of_the_system() -> set[str]:
    """The folders of the disks that the system itself lies on: no other machine has those."""
    root = next((one for one in reversed(mounts.read()) if one.place == "/"), None)
    number = _device_of(root) if root else None
    todo, found = [_folder(number)] if number is not None else [], set[str]()
    while todo:
        place = os.path.realpath(todo.pop())
        found.add(_whole_disk(place))
        with contextlib.suppress(OSError):
            todo += [f"{place}/slaves/{part}" for part in os.listdir(f"{place}/slaves")]
    return found


def _own_path(path: str) -> bool:
    try:
        return _own_device(os.stat(path).st_rdev)
    except OSError:
        return False


def _own_nvme(place: str) -> bool:
    """A drive with several ways to it is a subsystem; each way says how it is attached."""
    folder = os.path.dirname(place)
    if "/nvme-subsystem/" not in place or not os.path.isdir(folder):
        return False
    ways = [_read(folder, one, "transport") for one in os.listdir(folder)]
    return {way for way in ways if way} == {"pcie"}


def _ids(number: int) -> Iterator[str]:
    """What a device is called on every host that has it."""
    folder = _folder(number)
    partition = _read(folder, "partition")
    if partition:
        folder = os.path.dirname(os.path.realpath(folder))
    for name in ("dm/uuid", "device/wwid", "wwid", "device/serial"):
        found = _read(folder, name)
        if found:
            yield f"{found}-part{partition}" if partition else found
