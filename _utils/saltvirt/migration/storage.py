"""What happens to each disk of a guest that moves.

A disk, as the source reports it: ``target`` (vda), ``device`` (disk, cdrom, floppy, lun),
``type`` (file, block, network, …), ``source`` (path), ``format``, ``size_bytes`` (virtual),
``used_bytes`` (allocated), ``read_only``, ``shareable``, ``chain``: its backing files, nearest
first, each with ``path``, ``format``, ``size_bytes``, ``used_bytes``.

What the target says of a path: ``exists``, ``shared`` (proven by a marker), and of a backing
file ``same`` (has our bytes) and ``coming`` (another migration is copying it just now).
"""

import re
from dataclasses import dataclass, field

SHARED = "shared"
COPY = "copy"
OVERLAY = "overlay"
KEEP = "keep"
# as saltvirt.images.cache names its files
_BY_CONTENT = re.compile(r"/_base/[^/]+-[0-9a-f]{16}\.[a-z0-9]+$")


@dataclass(frozen=True)
class DiskPlan:
    """how: SHARED (nothing to do), COPY (all of it), OVERLAY (its own part), KEEP (no disk data).

    bases: backing files that the target lacks and gets, deepest first.
    """

    target: str
    how: str
    path: str = ""
    format: str = ""
    type: str = "file"
    size_bytes: int = 0
    moved_bytes: int = 0
    backing: dict | None = None
    bases: list = field(default_factory=list)


def plan(disks, seen, copy_storage=None):
    """A DiskPlan for each disk.

    disks: the source's; seen: {path: what the target says of it}; copy_storage: None
    (thin overlays stay thin), "all" (overlays are flattened), "incremental" or "never".
    """
    return [_plan_one(disk, seen, copy_storage) for disk in disks]


def _plan_one(disk, seen, copy_storage):
    path = disk.get("source") or ""
    if disk["type"] not in ("file", "block"):
        how = SHARED if path else KEEP
        return DiskPlan(disk["target"], how, path, disk["format"], disk["type"])
    if not path or disk["read_only"]:
        return DiskPlan(disk["target"], KEEP, path)
    if seen.get(path, {}).get("shared"):
        return DiskPlan(disk["target"], SHARED, path, disk["format"], disk["type"])
    if disk["chain"] and copy_storage != "all":
        return _overlay(disk, seen)
    moved = disk["used_bytes"] + sum(b["used_bytes"] for b in disk["chain"])
    return DiskPlan(
        disk["target"], COPY, path, disk["format"], disk["type"], disk["size_bytes"],
        min(moved, disk["size_bytes"]),
    )  # fmt: skip


def _overlay(disk, seen):
    lacking = [b for b in reversed(disk["chain"]) if not _whole(seen.get(b["path"], {}))]
    return DiskPlan(
        disk["target"], OVERLAY, disk["source"], disk["format"], disk["type"],
        disk["size_bytes"], disk["used_bytes"], disk["chain"][0], lacking,
    )  # fmt: skip


def _whole(there):
    return there.get("exists") and not there.get("coming")


def by_content(path):
    """Whether it is an image cache's file: equal names are equal bytes."""
    return bool(_BY_CONTENT.search(path))


def copied(plans):
    """The plans whose data travels."""
    return [p for p in plans if p.how in (COPY, OVERLAY)]


def proven(plans):
    """Whether files or devices are left where they are because we saw that both hosts share
    them: libvirt knows only some file systems for shared, and would not believe it."""
    return any(p.how == SHARED and p.type in ("file", "block") for p in plans)


def mode(plans):
    """libvirt's way for them all: "all", "incremental" or None.

    One call of libvirt knows one way for all its disks. Full copies of disks without
    backing files are the same in both, so one overlay makes it incremental.
    """
    ways = {p.how for p in copied(plans)}
    if OVERLAY in ways:
        return "incremental"
    return "all" if ways else None


def needed(plans):
    """Bytes that the target must have free, by directory: {directory: bytes}."""
    found = {}
    for one in copied(plans):
        parts = [(one.path, one.moved_bytes)]
        parts += [(b["path"], b["used_bytes"]) for b in one.bases]
        for path, size in parts:
            directory = path.rpartition("/")[0] or "/"
            found[directory] = found.get(directory, 0) + size
    return found
