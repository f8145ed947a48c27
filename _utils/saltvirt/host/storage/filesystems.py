"""Which file systems this host has, and which of them other hosts reach, too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from saltvirt.host.storage import bounded_io, mounts
from saltvirt.placement import resources

# those that other hosts reach, to what comes before their name: all that speak to one server
# must have the same name for it
_SHARED_TYPES = {
    "nfs": "nfs", "nfs4": "nfs", "cifs": "cifs", "smb3": "cifs", "ceph": "ceph",
    "fuse.ceph": "ceph", "fuse.glusterfs": "gluster", "lustre": "lustre", "beegfs": "beegfs",
    "virtiofs": "virtiofs",
}  # fmt: skip
# file systems that disks can be on without a device below /dev
_DISKLESS_TYPES = {"zfs", "btrfs", "bcachefs", "tmpfs"}
# devices that nothing can be written to
_READ_ONLY_TYPES = {"squashfs", "iso9660", "udf", "erofs"}


@dataclass(frozen=True)
class MountedFilesystem:
    """point: where it is. id: the shortest of the points that show the same file system."""

    mount_point: str
    id: str
    type: str
    source: str

    @property
    def shared(self) -> str | None:
        """The name of what other hosts reach as well, or None."""
        kind = _SHARED_TYPES.get(self.type)
        return f"{kind} {self.source}" if kind else None

    @property
    def local(self) -> bool:
        """Whether disks may be on it."""
        none = self.type in _READ_ONLY_TYPES or mounts.is_fuse(self.type)
        real = self.type in _DISKLESS_TYPES or (self.source.startswith("/dev/") and not none)
        return real or self.mount_point == "/"


def parse(rows: Iterable[str]) -> dict[str, MountedFilesystem]:
    """{mount point: Mount} of the lines of a mountinfo file."""
    entries, points = list(mounts.parse(rows)), dict[str, str]()
    for entry in entries:
        old = points.get(entry.number, entry.mount_point)
        points[entry.number] = min(old, entry.mount_point, key=lambda p: (len(p), p))
    return {
        entry.mount_point: MountedFilesystem(
            entry.mount_point, points[entry.number], entry.kind, entry.source
        )
        for entry in entries
    }


def read() -> dict[str, MountedFilesystem]:
    """The same of this host; its root alone where the kernel does not tell."""
    filesystems = parse(mounts.lines(mounts.TABLE))
    filesystems.setdefault("/", MountedFilesystem("/", "/", "", ""))
    return filesystems


def filesystem_of(filesystems: dict[str, MountedFilesystem], path: str) -> MountedFilesystem:
    """The Mount that a path of this host is, or will be, on. filesystems: of :func:`read`."""
    return filesystems[resources.longest(filesystems, bounded_io.real(path)) or "/"]


def sizes(mount: MountedFilesystem) -> dict[str, int]:
    """``total_bytes`` and ``free_bytes``; nothing of a file system that does not tell."""
    try:
        unit, total, free = bounded_io.room(mount.id)
    except OSError:
        unit, total, free = 0, 0, 0
    return {"total_bytes": unit * total, "free_bytes": unit * free}
