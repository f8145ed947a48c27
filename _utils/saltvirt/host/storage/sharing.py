"""Detection of storage that other hosts may reach.

Storage is local only if that is proven. Network file systems, devices of a storage network, and
file systems of which this host sees only a part may be shared.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.host.storage import identity
from saltvirt.schema import Mark, Message
from saltvirt.system import bounded_io, mounts

_DEVICES = "/sys/dev/block"
# parts of sysfs paths: local attachments, virtio and Xen disks, storage networks
_LOCAL_BUSES = ("/ata", "/mmc", "/usb", "/host")
# a virtio or Xen disk may be attached to other virtual machines as well
_PARAVIRTUAL_BUSES = ("/virtio", "/vbd-")
_NETWORK_BUSES = ("/session", "/rport-", "/end_device-", "/fc_", "fabrics")
_MEMORY_DEVICES = ("ram", "zram", "zd")


@dataclass(frozen=True)
class FileIdentity(Message):
    """Identity of a path for hosts that may know it by another name.

    names: names on a server. inode: inode number. ids: device ids, which are the same on all hosts.
    """

    path: str
    inode: Mark | None = None
    ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def as_data(identities: Mapping[str, FileIdentity]) -> dict[str, dict[str, Any]]:
    """Return the identities by path, in the format that the runner sends to other hosts."""
    return {path: identity_fact.to_answer() for path, identity_fact in identities.items()}


def sharing_reason(path: str) -> str | None:
    """Return why other hosts may reach the path; None if it is local to this host."""
    real_path = identity.real(path)
    try:
        status = bounded_io.stat(real_path)
    except OSError:
        real_path, status = os.path.dirname(real_path), None
    if status is not None and stat.S_ISBLK(status.st_mode):
        return None if _own_device(status.st_rdev) else "other hosts may use its device"
    return _mount_reason(real_path)


def file_identity(path: str) -> FileIdentity:
    """Return the FileIdentity of a path on this host."""
    real_path = identity.real(path)
    try:
        status = bounded_io.stat(real_path)
    except OSError:
        return FileIdentity(real_path)
    if stat.S_ISBLK(status.st_mode):
        return FileIdentity(real_path, ids=tuple(sorted(_ids(status.st_rdev))))
    return FileIdentity(real_path, status.st_ino)


def _mount_reason(path: str) -> str | None:
    mount_list = mounts.read()
    mount = mounts.mount_of(mount_list, path)
    if mount is None:
        return "its mount point is unknown"
    if mount.kind not in mounts.LOCAL:
        return f"{mount.kind} at {mount.mount_point}"
    if not _is_complete(mount, mount_list):
        return (
            f"{mount.mount_point} is a part of a file system that this host does not see completely"
        )
    number = _device_of(mount)
    if number is not None and not _own_device(number):
        return f"other hosts may use the device of {mount.mount_point}"
    return None


def _is_complete(mount: mounts.Mount, mount_list: Sequence[mounts.Mount]) -> bool:
    """Return whether the whole file system, not only one of its folders, is mounted here.

    The root file system belongs to this host even if it is a folder of a larger one.
    """
    if "/" in (mount.root, mount.mount_point) or f"subvol={mount.root}" in mount.options.split(","):
        return True
    roots = {entry.root.rstrip("/") for entry in mount_list if entry.number == mount.number}
    return any(f"{mount.root}/".startswith(f"{root}/") for root in roots - {mount.root})


def _device_of(mount: mounts.Mount) -> int | None:
    """Return the number of the device below a file system, or None."""
    try:
        status = bounded_io.stat(mount.source) if mount.source.startswith("/") else None
        if status and stat.S_ISBLK(status.st_mode):
            return status.st_rdev
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
    """Return whether a block device, with all devices below it, belongs to this machine."""
    folder = _folder(number)
    if _read(folder, "dm/uuid").startswith("mpath-"):
        return False
    sysfs_path = os.path.realpath(folder)
    name = os.path.basename(sysfs_path)
    parts = os.listdir(f"{folder}/slaves") if os.path.isdir(f"{folder}/slaves") else []
    if parts:
        return all(_own_path(f"/dev/{part.replace('!', '/')}") for part in parts)
    backing = _read(folder, "loop/backing_file")
    if backing:
        return sharing_reason(backing) is None
    if "/virtual/" in sysfs_path:
        return name.rstrip("0123456789") in _MEMORY_DEVICES or _own_nvme(sysfs_path)
    return _is_attached_here(sysfs_path)


def _is_attached_here(sysfs_path: str) -> bool:
    """Return whether a disk is attached to this machine only, from its sysfs path."""
    if any(bus in sysfs_path for bus in _NETWORK_BUSES):
        return False
    if any(bus in sysfs_path for bus in _PARAVIRTUAL_BUSES):
        return _whole_disk(sysfs_path) in _system_disks()
    return any(bus in sysfs_path for bus in _LOCAL_BUSES) or "/nvme" in sysfs_path


def _whole_disk(sysfs_path: str) -> str:
    """Return the sysfs path of the disk, for the path of one of its partitions."""
    return os.path.dirname(sysfs_path) if os.path.exists(f"{sysfs_path}/partition") else sysfs_path


def _system_disks() -> set[str]:
    """Return the sysfs paths of the disks of the root file system, which no other machine uses."""
    root = next((mount for mount in reversed(mounts.read()) if mount.mount_point == "/"), None)
    number = _device_of(root) if root else None
    todo, disks = [_folder(number)] if number is not None else [], set[str]()
    while todo:
        sysfs_path = os.path.realpath(todo.pop())
        disks.add(_whole_disk(sysfs_path))
        with contextlib.suppress(OSError):
            todo += [f"{sysfs_path}/slaves/{part}" for part in os.listdir(f"{sysfs_path}/slaves")]
    return disks


def _own_path(path: str) -> bool:
    try:
        return _own_device(os.stat(path).st_rdev)
    except OSError:
        return False


def _own_nvme(sysfs_path: str) -> bool:
    """Return whether all paths of a multipath NVMe subsystem are local (PCIe)."""
    folder = os.path.dirname(sysfs_path)
    if "/nvme-subsystem/" not in sysfs_path or not os.path.isdir(folder):
        return False
    transports = [_read(folder, name, "transport") for name in os.listdir(folder)]
    return {transport for transport in transports if transport} == {"pcie"}


def _ids(number: int) -> Iterator[str]:
    """Yield the ids that a device has on each host that can reach it."""
    folder = _folder(number)
    partition = _read(folder, "partition")
    if partition:
        folder = os.path.dirname(os.path.realpath(folder))
    for name in ("dm/uuid", "device/wwid", "wwid", "device/serial"):
        device_id = _read(folder, name)
        if device_id:
            yield f"{device_id}-part{partition}" if partition else device_id
