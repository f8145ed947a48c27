"""Which file systems this host has, and which of them other hosts reach, too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from saltvirt.host.storage import bounded, mounts
from saltvirt.placement import account

# those that other hosts reach, to what comes before their name: all that speak to one server
# must have the same name for it
_SHARED = {
    "nfs": "nfs", "nfs4": "nfs", "cifs": "cifs", "smb3": "cifs", "ceph": "ceph",
    "fuse.ceph": "ceph", "fuse.glusterfs": "gluster", "lustre": "lustre", "beegfs": "beegfs",
    "virtiofs": "virtiofs",
}  # fmt: skip
# file systems that disks can be on without a device below /dev
_OTHERS = {"zfs", "btrfs", "bcachefs", "tmpfs"}
# devices that nothing can be written to
_FIXED = {"squashfs", "iso9660", "udf", "erofs"}


@dataclass(frozen=True)
class Mount:
    """point: where it is. id: the shortest of the points that show the same file system."""

    point: str
    id: str
    type: str
    source: str

    @property
    def shared(self) -> str | None:
        """The name of what other hosts reach as well, or None."""
        kind = _SHARED.get(self.type)
        return f"{kind} {self.source}" if kind else None

    @property
    def local(self) -> bool:
        """Whether disks may be on it."""
        none = self.type in _FIXED or mounts.is_fuse(self.type)
        real = self.type in _OTHERS or (self.source.startswith("/dev/") and not none)
        return real or self.point == "/"


def parse(rows: Iterable[str]) -> dict[str, Mount]:
    """{mount point: Mount} of the lines of a mountinfo file."""
    found, points = list(mounts.parse(rows)), dict[str, str]()
    for one in found:
        old = points.get(one.number, one.place)
        points[one.number] = min(old, one.place, key=lambda p: (len(p), p))
    return {one.place: Mount(one.place, points[one.number], one.kind, one.source) for one in found}


def read() -> dict[str, Mount]:
    """The same of this host; its root alone where the kernel does not tell."""
    found = parse(mounts.lines(mounts.TABLE))
    found.setdefault("/", Mount("/", "/", "", ""))
    return found


def of(there: dict[str, Mount], path: str) -> Mount:
    """The Mount that a path of this host is, or will be, on. there: of :func:`read`."""
    return there[account.longest(there, bounded.real(path)) or "/"]


def sizes(mount: Mount) -> dict[str, int]:
    """``total_bytes`` and ``free_bytes``; nothing of a file system that does not tell."""
    try:
        unit, total, free = bounded.room(mount.id)
    except OSError:
        unit, total, free = 0, 0, 0
    return {"total_bytes": unit * total, "free_bytes": unit * free}
