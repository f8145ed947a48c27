"""Which file systems this host has, and which of them other hosts reach, too."""

import re
from dataclasses import dataclass

from saltvirt.host.storage import bounded
from saltvirt.placement import account

MOUNTINFO = "/proc/self/mountinfo"
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
    def shared(self):
        """The name of what other hosts reach as well, or None."""
        kind = _SHARED.get(self.type)
        return f"{kind} {self.source}" if kind else None

    @property
    def local(self):
        """Whether disks may be on it."""
        real = self.type in _OTHERS or (self.source.startswith("/dev/") and self.type not in _FIXED)
        return real or self.point == "/"


def parse(text):
    """{mount point: Mount} of what the kernel says in a mountinfo file."""
    rows, points = [], {}
    for line in text.splitlines():
        before, found, after = line.partition(" - ")
        fields, more = before.split(), after.split()
        if not found or len(fields) < 5 or len(more) < 2:
            continue
        point = _plain(fields[4])
        rows.append((point, fields[2], more[0], _plain(more[1])))
        old = points.get(fields[2], point)
        points[fields[2]] = min(old, point, key=lambda p: (len(p), p))
    return {
        point: Mount(point, points[device], kind, source) for point, device, kind, source in rows
    }


def _plain(word):
    """A word without the kernel's escapes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word)


def read(path=MOUNTINFO):
    """The same of this host; its root alone where the kernel does not tell."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            found = parse(file.read())
    except OSError:
        found = {}
    found.setdefault("/", Mount("/", "/", "", ""))
    return found


def of(mounts, path):
    """The Mount that a path of this host is, or will be, on."""
    return mounts[account.longest(mounts, bounded.real(path)) or "/"]


def sizes(mount):
    """``total_bytes`` and ``free_bytes``; nothing of a file system that does not tell."""
    try:
        unit, total, free = bounded.room(mount.id)
    except OSError:
        unit, total, free = 0, 0, 0
    return {"total_bytes": unit * total, "free_bytes": unit * free}
