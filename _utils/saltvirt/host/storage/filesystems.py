"""File systems of this host, and which of them other hosts can reach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from saltvirt.placement import resources
from saltvirt.system import bounded_io, mounts

# types that other hosts can reach, and the prefix of their names; types that use the same
# server must have the same prefix
_SHARED_TYPES = {
    "nfs": "nfs", "nfs4": "nfs", "cifs": "cifs", "smb3": "cifs", "ceph": "ceph",
    "fuse.ceph": "ceph", "fuse.glusterfs": "gluster", "lustre": "lustre", "beegfs": "beegfs",
    "virtiofs": "virtiofs",
}  # fmt: skip
# types that can store disks without a device below /dev
_DISKLESS_TYPES = {"zfs", "btrfs", "bcachefs", "tmpfs"}
# read-only types
_READ_ONLY_TYPES = {"squashfs", "iso9660", "udf", "erofs"}


@dataclass(frozen=True)
class MountedFilesystem:
    """A mounted file system.

    mount_point: where it is mounted. id: the shortest mount point of the same file system.
    """

    mount_point: str
    id: str
    type: str
    source: str

    @property
    def shared(self) -> str | None:
        """The name of the shared file system, or None for a local one."""
        kind = _SHARED_TYPES.get(self.type)
        return f"{kind} {self.source}" if kind else None

    @property
    def local(self) -> bool:
        """Whether disks may be stored on it."""
        none = self.type in _READ_ONLY_TYPES or mounts.is_fuse(self.type)
        real = self.type in _DISKLESS_TYPES or (self.source.startswith("/dev/") and not none)
        return real or self.mount_point == "/"


def parse(rows: Iterable[str]) -> dict[str, MountedFilesystem]:
    """Return {mount point: MountedFilesystem} from the lines of a mountinfo file."""
    entries, points = list(mounts.parse(rows)), dict[str, str]()
    for entry in entries:
        old = points.get(entry.number, entry.mount_point)
        points[entry.number] = min(old, entry.mount_point, key=lambda p: (len(p), p))
    return {
        e.mount_point: MountedFilesystem(e.mount_point, points[e.number], e.kind, e.source)
        for e in entries
    }


def read() -> dict[str, MountedFilesystem]:
    """Return the file systems of this host; only the root if the kernel provides no table."""
    filesystems = parse(mounts.lines(mounts.TABLE))
    filesystems.setdefault("/", MountedFilesystem("/", "/", "", ""))
    return filesystems


def filesystem_of(filesystems: dict[str, MountedFilesystem], path: str) -> MountedFilesystem:
    """Return the file system that contains, or will contain, a path.

    filesystems: the result of :func:`read`.
    """
    return filesystems[resources.longest(filesystems, bounded_io.real(path)) or "/"]


def sizes(mount: MountedFilesystem) -> dict[str, int]:
    """Return ``total_bytes`` and ``free_bytes``; zero if the file system does not provide them."""
    try:
        unit, total, free = bounded_io.room(mount.id)
    except OSError:
        unit, total, free = 0, 0, 0
    return {"total_bytes": unit * total, "free_bytes": unit * free}
