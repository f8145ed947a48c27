"""What happens to each disk of a guest that moves, by what its host and the target tell of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.migration import shared
from saltvirt.migration.facts import UNSEEN, BackingFile, DiskReport, PlaceReport

SHARED = "shared"
COPY = "copy"
OVERLAY = "overlay"
SEED = "seed"
KEEP = "keep"
REFUSED = "refused"
# where the volumes for cloud-init are, in the folder of images
SEED_FOLDER = "_seed"
# as saltvirt.images.cache names its files
_BY_CONTENT = re.compile(r"/_base/[^/]+-[0-9a-f]{16}\.[a-z0-9]+$")
UNKNOWN = "whether both hosts share it is not known"


@dataclass(frozen=True)
class DiskPlan:
    """how: SHARED (proven: nothing to do), COPY (all of it), OVERLAY (its own part), SEED
    (the volume for cloud-init, copied as a file before the guest moves), KEEP (no disk data),
    REFUSED (no way, see why).

    path: here; there: on the target. bases: backing files that the target lacks and gets,
    deepest first. own: those of them that are the guest's own (the disk as it was before a
    snapshot): they move with it.
    """

    target: str
    how: str
    path: str = ""
    format: str = ""
    type: str = "file"
    size_bytes: int = 0
    moved_bytes: int = 0
    backing: BackingFile | None = None
    bases: tuple[BackingFile, ...] = ()
    there: str = ""
    why: str = ""
    own: tuple[BackingFile, ...] = ()

    @property
    def along(self) -> tuple[BackingFile, ...]:
        """The guest's own backing files that are copied: not of a disk that is made one."""
        return () if self.how == COPY else self.own

    @property
    def left(self) -> list[str]:
        """The files that stay here when the guest is gone."""
        copied = self.how in (COPY, OVERLAY, SEED)
        return [*([self.path] if copied else []), *(b.path for b in self.own)]


def plan(
    disks: Iterable[DiskReport], seen: Mapping[str, PlaceReport], copy_storage: str | None = None
) -> list[DiskPlan]:
    """A DiskPlan for each disk.

    seen: what the target says of each, by its key; copy_storage: None (thin overlays stay thin),
    "all" (overlays are flattened), "incremental" or "never".
    """
    return [_plan_one(disk, seen, copy_storage) for disk in disks]


def _plan_one(
    disk: DiskReport, seen: Mapping[str, PlaceReport], copy_storage: str | None
) -> DiskPlan:
    there = seen.get(disk.key, UNSEEN)
    if disk.seed and not disk.trouble and there.shared is False and not there.exists:
        return _made(disk, there, SEED, moved_bytes=disk.used_bytes)
    if not disk.trouble and (disk.read_only or _empty(disk)):
        return _made(disk, there, KEEP)
    why = _stuck(disk, there) or _apart(disk, there, copy_storage)
    if why:
        return _made(disk, there, REFUSED, why=why)
    own = tuple(b for b in reversed(disk.chain) if b.own and not seen.get(b.path, UNSEEN).shared)
    if disk.type == "network" or there.shared:
        return _made(disk, there, SHARED, bases=_lacking(disk, seen), own=own)
    if disk.chain and copy_storage != "all":
        return _made(
            disk, there, OVERLAY, size_bytes=disk.size_bytes,
            moved_bytes=disk.used_bytes + sum(b.used_bytes for b in own),
            backing=disk.chain[0], bases=_lacking(disk, seen), own=own,
        )  # fmt: skip
    moved = disk.used_bytes + sum(b.used_bytes for b in disk.chain)
    return _made(
        disk, there, COPY, size_bytes=disk.size_bytes,
        moved_bytes=min(moved, disk.size_bytes), own=own,
    )  # fmt: skip


def _empty(disk: DiskReport) -> bool:
    """Whether it is a drive without a medium."""
    return disk.is_local and not disk.source


def _made(disk: DiskReport, there: PlaceReport, how: str, **more: Any) -> DiskPlan:
    path = disk.source or ""
    return DiskPlan(
        disk.target, how, path, disk.format, disk.type, there=there.path or path, **more
    )


def _stuck(disk: DiskReport, there: PlaceReport) -> str | None:
    """Why nothing at all can be done with a disk, or None."""
    if disk.trouble:
        return disk.trouble
    if disk.type not in ("file", "block", "network"):
        return f"a disk of type {disk.type} is bound to its host"
    return there.trouble


def _apart(disk: DiskReport, there: PlaceReport, copy_storage: str | None) -> str | None:
    """Why a disk is neither proven shared nor such that it could be copied, or None."""
    if disk.network:
        return shared.network(disk.network)
    if there.shared:
        return None
    if there.shared is None:
        return there.why or UNKNOWN
    if shared.on_network(disk.fs) and copy_storage not in ("all", "incremental"):
        return (
            f"it is on a network file system here ({disk.fs}), and the target has another one "
            "there, or none: mount the same one, or ask for a copy with copy_storage=all"
        )
    kind = disk.pool.type if disk.pool else None
    if kind and kind not in shared.FILLED_POOLS:
        return (
            f"a volume of a pool of type {kind} cannot be copied, and the target does not show the "
            "same one"
        )
    return None


def _lacking(disk: DiskReport, seen: Mapping[str, PlaceReport]) -> tuple[BackingFile, ...]:
    """The images that the target has to get, deepest first."""
    images = [b for b in reversed(disk.chain) if not b.own]
    return tuple(b for b in images if not _whole(seen.get(b.path, UNSEEN)))


def _whole(there: PlaceReport) -> bool:
    return there.exists and not there.coming


def by_content(path: str) -> bool:
    """Whether it is an image cache's file: equal names are equal bytes."""
    return bool(_BY_CONTENT.search(path))


def coming(path: str) -> str:
    """The file that lies beside an image for as long as a migration copies it there."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.coming"


def copied(plans: Iterable[DiskPlan]) -> list[DiskPlan]:
    """The plans of disks whose data libvirt sends, or we send in its place."""
    return [p for p in plans if p.how in (COPY, OVERLAY)]


def proven(plans: Iterable[DiskPlan]) -> bool:
    """Whether files or devices are left where they are because it was proven that both hosts share
    them: libvirt knows only some file systems for shared, and would not believe it.

    libvirt's own check is for all disks or for none, so one that is refused keeps it on.
    """
    ours = {p.how for p in plans if p.how == REFUSED or p.type in ("file", "block")}
    return REFUSED not in ours and SHARED in ours


def mode(plans: Iterable[DiskPlan]) -> str | None:
    """libvirt's way for them all: "all", "incremental" or None.

    One call of libvirt knows one way for all its disks. Full copies of disks without
    backing files are the same in both, so one overlay makes it incremental.
    """
    ways = {p.how for p in copied(plans)}
    if OVERLAY in ways:
        return "incremental"
    return "all" if ways else None


def needed(plans: Iterable[DiskPlan]) -> dict[str, int]:
    """Bytes that the target must have free, by directory: {directory: bytes}."""
    found: dict[str, int] = {}
    for one in plans:
        along = [(b.path, b.used_bytes) for b in (*one.bases, *one.along)]
        moved = one.moved_bytes - sum(b.used_bytes for b in one.along)
        copied = one.how in (COPY, OVERLAY, SEED)
        parts = [*([(one.there, moved)] if copied else []), *along]
        for path, size in parts:
            directory = path.rpartition("/")[0] or "/"
            found[directory] = found.get(directory, 0) + size
    return found


def promised(plans: Iterable[DiskPlan]) -> tuple[tuple[str, int], ...]:
    """What the copied disks may become on the target, with what they are based on there: pairs of a
    directory and bytes."""
    found: dict[str, int] = {}
    for one in plans:
        size = max(one.size_bytes, one.moved_bytes)
        parts = [(one.there, size)] if one.how in (COPY, OVERLAY, SEED) else []
        parts += [(base.path, base.used_bytes) for base in one.bases]
        for path, size in parts:
            directory = path.rpartition("/")[0] or "/"
            found[directory] = found.get(directory, 0) + size
    return tuple(sorted(found.items()))
