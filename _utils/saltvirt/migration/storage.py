"""Decide what happens to each disk of a migrating guest, from the reports of its host and of the
target."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.migration import shared
from saltvirt.migration.facts import UNKNOWN_LOCATION, BackingFile, DiskReport, LocationReport

SHARED = "shared"
COPY = "copy"
OVERLAY = "overlay"
SEED = "seed"
KEEP = "keep"
REFUSED = "refused"
# the folder of cloud-init volumes in the folder of images
SEED_FOLDER = "_seed"
# the names of files in saltvirt.images.cache
_BY_CONTENT = re.compile(r"/_base/[^/]+-[0-9a-f]{16}\.[a-z0-9]+$")
UNKNOWN = "whether both hosts share it is not known"


@dataclass(frozen=True)
class DiskPlan:
    """method: SHARED (verified: nothing to copy), COPY (all data), OVERLAY (the overlay alone),
    SEED (the cloud-init volume, copied as a file before the guest moves), KEEP (no disk data),
    REFUSED (impossible, see reason).

    path: on the source; target_path: on the target. bases: backing files that the target lacks and
    gets, deepest first. owned_files: the backing files that belong to the guest (its disk before a
    snapshot); they move with the disk.
    """

    target: str
    method: str
    path: str = ""
    format: str = ""
    type: str = "file"
    size_bytes: int = 0
    moved_bytes: int = 0
    backing: BackingFile | None = None
    bases: tuple[BackingFile, ...] = ()
    target_path: str = ""
    reason: str = ""
    owned_files: tuple[BackingFile, ...] = ()

    @property
    def copied_files(self) -> tuple[BackingFile, ...]:
        """The guest's own backing files to copy; none for a disk that is flattened."""
        return () if self.method == COPY else self.owned_files

    @property
    def source_files(self) -> list[str]:
        """The files that remain on the source when the guest has moved."""
        is_copied = self.method in (COPY, OVERLAY, SEED)
        return [*([self.path] if is_copied else []), *(b.path for b in self.owned_files)]


def plan(
    disks: Iterable[DiskReport],
    locations: Mapping[str, LocationReport],
    copy_storage: str | None = None,
) -> list[DiskPlan]:
    """Return a DiskPlan for each disk.

    locations: the target's report of each disk by its key; copy_storage: None (thin overlays stay
    thin), "all" (overlays are flattened), "incremental" or "never".
    """
    return [_plan_one(disk, locations, copy_storage) for disk in disks]


def _plan_one(
    disk: DiskReport, locations: Mapping[str, LocationReport], copy_storage: str | None
) -> DiskPlan:
    location = locations.get(disk.key, UNKNOWN_LOCATION)
    if disk.seed and not disk.error and location.shared is False and not location.exists:
        return _disk_plan(disk, location, SEED, moved_bytes=disk.used_bytes)
    if not disk.error and (disk.read_only or _empty(disk)):
        return _disk_plan(disk, location, KEEP)
    reason = _immovable_reason(disk, location) or _unproven_reason(disk, location, copy_storage)
    if reason:
        return _disk_plan(disk, location, REFUSED, reason=reason)
    owned_files = tuple(
        b
        for b in reversed(disk.chain)
        if b.owned and not locations.get(b.path, UNKNOWN_LOCATION).shared
    )
    if disk.type == "network" or location.shared:
        return _disk_plan(
            disk, location, SHARED, bases=_missing_bases(disk, locations), owned_files=owned_files
        )
    if disk.chain and copy_storage != "all":
        return _disk_plan(
            disk, location, OVERLAY, size_bytes=disk.size_bytes,
            moved_bytes=disk.used_bytes + sum(b.used_bytes for b in owned_files),
            backing=disk.chain[0], bases=_missing_bases(disk, locations), owned_files=owned_files,
        )  # fmt: skip
    moved_bytes = disk.used_bytes + sum(b.used_bytes for b in disk.chain)
    return _disk_plan(
        disk, location, COPY, size_bytes=disk.size_bytes,
        moved_bytes=min(moved_bytes, disk.size_bytes), owned_files=owned_files,
    )  # fmt: skip


def _empty(disk: DiskReport) -> bool:
    """Return whether the disk is a drive without a medium."""
    return disk.is_local and not disk.source


def _disk_plan(disk: DiskReport, location: LocationReport, method: str, **values: Any) -> DiskPlan:
    path = disk.source or ""
    return DiskPlan(
        disk.target,
        method,
        path,
        disk.format,
        disk.type,
        target_path=location.path or path,
        **values,
    )


def _immovable_reason(disk: DiskReport, location: LocationReport) -> str | None:
    """Return why the disk cannot be handled in any way, or None."""
    if disk.error:
        return disk.error
    if disk.type not in ("file", "block", "network"):
        return f"a disk of type {disk.type} cannot leave its host"
    return location.error


def _unproven_reason(
    disk: DiskReport, location: LocationReport, copy_storage: str | None
) -> str | None:
    """Return why the disk is neither verified as shared nor copyable, or None."""
    if disk.network:
        return shared.network(disk.network)
    if location.shared:
        return None
    if location.shared is None:
        return location.reason or UNKNOWN
    if shared.on_network(disk.fs) and copy_storage not in ("all", "incremental"):
        return (
            f"it is on a network file system here ({disk.fs}), and the target has another one "
            "there, or none: mount the same one, or copy it with copy_storage=all"
        )
    kind = disk.pool.type if disk.pool else None
    if kind and kind not in shared.FILLED_POOLS:
        return (
            f"a volume of a pool of type {kind} cannot be copied, and the target does not show the "
            "same one"
        )
    return None


def _missing_bases(
    disk: DiskReport, locations: Mapping[str, LocationReport]
) -> tuple[BackingFile, ...]:
    """Return the images that the target lacks, deepest first."""
    images = [b for b in reversed(disk.chain) if not b.owned]
    return tuple(b for b in images if not _is_complete(locations.get(b.path, UNKNOWN_LOCATION)))


def _is_complete(location: LocationReport) -> bool:
    return location.exists and not location.incoming


def by_content(path: str) -> bool:
    """Return whether the path is a file of an image cache: equal names have equal content."""
    return bool(_BY_CONTENT.search(path))


def incoming_path(path: str) -> str:
    """Return the marker file that exists beside an image while a migration copies it."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.coming"


def copied_plans(plans: Iterable[DiskPlan]) -> list[DiskPlan]:
    """Return the plans of disks whose data libvirt, or Salt Virt in its place, sends."""
    return [p for p in plans if p.method in (COPY, OVERLAY)]


def is_proven_shared(plans: Iterable[DiskPlan]) -> bool:
    """Return whether files or devices stay in place because they were verified as shared.

    libvirt recognizes only some file systems as shared and would refuse. Its own check applies to
    all disks or to none, so one refused disk keeps it enabled.
    """
    methods = {p.method for p in plans if p.method == REFUSED or p.type in ("file", "block")}
    return REFUSED not in methods and SHARED in methods


def mode(plans: Iterable[DiskPlan]) -> str | None:
    """Return libvirt's copy mode for all disks: "all", "incremental" or None.

    One libvirt call has one mode for all disks. Full copies of disks without backing files are
    equal in both, so one overlay makes it incremental.
    """
    methods = {p.method for p in copied_plans(plans)}
    if OVERLAY in methods:
        return "incremental"
    return "all" if methods else None


def required_space(plans: Iterable[DiskPlan]) -> dict[str, int]:
    """Return the bytes that the target must have free, by directory."""
    by_directory: dict[str, int] = {}
    for disk in plans:
        copied_files = [(b.path, b.used_bytes) for b in (*disk.bases, *disk.copied_files)]
        moved_bytes = disk.moved_bytes - sum(b.used_bytes for b in disk.copied_files)
        is_copied = disk.method in (COPY, OVERLAY, SEED)
        parts = [*([(disk.target_path, moved_bytes)] if is_copied else []), *copied_files]
        for path, size in parts:
            directory = path.rpartition("/")[0] or "/"
            by_directory[directory] = by_directory.get(directory, 0) + size
    return by_directory


def promised_space(plans: Iterable[DiskPlan]) -> tuple[tuple[str, int], ...]:
    """Return the maximum size of the copied disks and their backing files on the target, as pairs
    of a directory and bytes."""
    by_directory: dict[str, int] = {}
    for disk in plans:
        size = max(disk.size_bytes, disk.moved_bytes)
        parts = [(disk.target_path, size)] if disk.method in (COPY, OVERLAY, SEED) else []
        parts += [(base.path, base.used_bytes) for base in disk.bases]
        for path, size in parts:
            directory = path.rpartition("/")[0] or "/"
            by_directory[directory] = by_directory.get(directory, 0) + size
    return tuple(sorted(by_directory.items()))
