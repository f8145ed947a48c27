"""Each disk can reach the target, and there is space for the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saltvirt.migration import shared, storage
from saltvirt.migration.facts import (
    BackingFile,
    DiskReport,
    GuestReport,
    LocationReport,
    TargetReport,
)
from saltvirt.units import human_bytes

if TYPE_CHECKING:
    from saltvirt.migration.checks.request import CheckedMigration


# cache modes that are safe while two hosts share a file
COHERENT = ("none", "directsync")
SLACK_BYTES = 64 * 1024 * 1024


def reasons(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> Iterator[str]:
    by_target = {disk.target: disk for disk in guest.disks}
    for plan in request.plans:
        disk = by_target[plan.target]
        if plan.method == storage.REFUSED:
            yield f"disk {plan.target} ({disk.key or 'without a source'}) stays: {plan.reason}"
        elif plan.method == storage.SHARED:
            yield from _shared(guest, disk, request)
            yield from _bases(disk, host)
        elif plan.method == storage.KEEP:
            yield from _medium(guest, disk, host)
        elif plan.method != storage.SEED:
            yield from _copied_disk(guest, disk, plan, host, request)
    yield from _pending_disks(guest, host)
    yield from _variables(guest, host)
    yield from _unmounted(guest, host, request)
    yield from _capacity(host, request)
    yield from _tunnel(guest, request)


def _shared(guest: GuestReport, disk: DiskReport, request: CheckedMigration) -> Iterator[str]:
    if request.options.copy_storage in ("all", "incremental") and disk.is_local:
        yield (
            f"disk {disk.target} is on storage that both hosts share: copying it onto itself "
            "would destroy it; leave copy_storage out"
        )
    elif guest.active and _cached(disk):
        yield (
            f"disk {disk.target} is on shared storage with cache={disk.cache or 'default'}: "
            "the other host could read old data; use cache none"
        )


def _pending_disks(guest: GuestReport, host: TargetReport) -> Iterator[str]:
    """Check the disks of the next start: they are transferred as definitions only, without data."""
    for disk, plan in zip(
        guest.pending_disks, storage.plan(guest.pending_disks, host.locations), strict=True
    ):
        if plan.method == storage.KEEP:
            yield from _medium(guest, disk, host)
        elif plan.method != storage.SHARED:
            yield (
                f"disk {disk.target} ({disk.key}) is the guest's from its next start on, and "
                f"{host.hostname} does not have it: stop the guest and start it again first, so "
                "that the disk moves along, or detach the disk"
            )


def _cached(disk: DiskReport) -> bool:
    """Return whether the other host may read stale data: libvirt does not check disks that we have
    verified as shared."""
    return disk.is_local and disk.cache not in COHERENT


def _medium(guest: GuestReport, disk: DiskReport, host: TargetReport) -> Iterator[str]:
    name = disk.key
    location = host.location(name)
    local = disk.is_local or disk.pool
    is_seed = disk.seed or name.endswith(f"/{storage.SEED_FOLDER}/{guest.name}.iso")
    if is_seed and not location.shared:
        yield (
            f"{disk.device} {disk.target} has {name}, the volume that seeds the guest, which "
            f"cannot move along: {_seed_reason(disk, location, host)}; salt-run virt.seed_eject "
            f"{guest.name} ejects and deletes it"
        )
    elif name and local and not location.exists:
        yield (
            f"{disk.device} {disk.target} is {name}, which "
            f"{host.hostname} does not have: put it there, or eject it"
        )


def _seed_reason(disk: DiskReport, location: LocationReport, host: TargetReport) -> str:
    """Return why the cloud-init volume is not copied to the target."""
    if not disk.seed:
        return "the guest's record does not name it, so it may belong to another guest"
    if location.exists:
        return f"{host.hostname} already has another file of that name: check whose it is"
    return location.reason or storage.UNKNOWN


def _copied_disk(
    guest: GuestReport,
    disk: DiskReport,
    plan: storage.DiskPlan,
    host: TargetReport,
    request: CheckedMigration,
) -> Iterator[str]:
    if request.options.copy_storage == "never":
        yield (
            f"disk {disk.target} ({plan.path}) is not on storage that both hosts share, "
            "and copy_storage is off"
        )
        return
    if disk.shareable:
        yield f"disk {disk.target} is shared with other guests and cannot be copied"
    if disk.encrypted and guest.active:
        yield (
            f"disk {disk.target} is encrypted by QEMU, which does not open a new file of it on "
            f"{host.hostname}: stop the guest to move it cold"
        )
    location = host.location(disk.key)
    if location.exists:
        yield (
            f"{host.hostname} already has {plan.target_path}, which is not the disk of this guest "
            "but may belong to another: check which one"
        )
    if disk.type == "block" and not location.pool:
        yield (
            f"disk {disk.target} is the block device {plan.path}, for which "
            f"{host.hostname} has no storage pool"
        )
    yield from _thin_copy(guest, disk, plan, host, request)


def _variables(guest: GuestReport, host: TargetReport) -> Iterator[str]:
    """Check that the file of firmware variables would not be overwritten."""
    if guest.nvram == "":
        yield "the firmware variables are not in a file: only a file can be migrated"
    if not guest.nvram:
        return
    location = host.location(guest.nvram)
    if location.shared is None:
        yield f"the firmware variables {guest.nvram}: {location.reason or storage.UNKNOWN}"
    elif location.exists and not location.shared:
        yield (
            f"{host.hostname} already has {guest.nvram}, which does not belong to this "
            "guest: check which one it belongs to"
        )


def _thin_copy(
    guest: GuestReport,
    disk: DiskReport,
    plan: storage.DiskPlan,
    host: TargetReport,
    request: CheckedMigration,
) -> Iterator[str]:
    copy_storage = request.options.copy_storage
    if copy_storage == "incremental" and not disk.chain:
        yield (
            f"copy_storage is incremental, but disk {disk.target} has no backing file; "
            "leave copy_storage out"
        )
    if copy_storage == "all" and disk.chain and not guest.active:
        yield (
            f"copy_storage is all, but the overlay {plan.path} of a stopped guest is copied as "
            "it is; leave copy_storage out"
        )
    if plan.method == storage.OVERLAY:
        yield from _bases(disk, host)


def _bases(disk: DiskReport, host: TargetReport) -> Iterator[str]:
    for base in disk.chain:
        location = host.location(base.path)
        yield from (
            _owned_base(disk, base, location, host) if base.owned else _base(base, location, host)
        )


def _owned_base(
    disk: DiskReport, base: BackingFile, location: LocationReport, host: TargetReport
) -> Iterator[str]:
    """Check the disk before a snapshot: it must be copied to where the disk refers to it."""
    folder = (host.location(disk.key).path or "").rpartition("/")[0]
    if location.shared:
        return
    if location.shared is None:
        yield f"{base.path}, the backing file of disk {disk.target}: {location.reason}"
    elif location.exists:
        yield (
            f"{host.hostname} already has {base.path}, which is not the backing file of "
            f"disk {disk.target}: check which guest uses it"
        )
    elif disk.pool and folder != base.path.rpartition("/")[0]:
        yield (
            f"disk {disk.target} has the backing file {base.path}, and pool {disk.pool.name} is in "
            f"{folder} on {host.hostname}: delete the guest's snapshots first"
        )


def _base(base: BackingFile, location: LocationReport, host: TargetReport) -> Iterator[str]:
    """Check that a backing file of that name is the same file, and is not copied below a mount
    point."""
    if shared.on_network(base.fs) and not location.exists:
        yield (
            f"{base.path}, the backing file of the guest's disk, is on a network file system "
            f"({base.fs}) that {host.hostname} does not show: mount it there"
        )
    if location.same_content is False:
        yield (
            f"{host.hostname} has another {base.path} than the backing file of the guest's "
            "disk: use copy_storage=all, which makes one whole disk of it"
        )


def _unmounted(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> Iterator[str]:
    """Check that nothing is copied below a mount point without a mount: that would fill the root
    file system and be hidden by the next mount."""
    store = guest.nvram if guest.nvram and not host.location(guest.nvram).shared else ""
    folders = {
        *storage.required_space(request.plans),
        *([store.rpartition("/")[0]] if store else []),
    }
    for point in request.unmounted:
        for folder in sorted(path for path in folders if f"{path}/".startswith(f"{point}/")):
            yield (
                f"{point} is not mounted on {host.hostname}: nothing is copied to {folder} there; "
                f"mount it, or see virt.forget_mount"
            )


def _capacity(host: TargetReport, request: CheckedMigration) -> Iterator[str]:
    for directory, size in storage.required_space(request.plans).items():
        free = host.free_bytes.get(directory)
        if free is not None and free < size + SLACK_BYTES:
            yield (
                f"{directory} on {host.hostname} has {human_bytes(free)} free, "
                f"{human_bytes(size)} are to be copied"
            )


def _tunnel(guest: GuestReport, request: CheckedMigration) -> Iterator[str]:
    if guest.active and request.transport.tunnelled and storage.mode(request.plans):
        yield (
            "virt:tunnel is on, and libvirt cannot tunnel the disks of a running guest: set "
            "virt:tunnel to False (memory and disks are then encrypted by QEMU itself), "
            "use shared storage, or stop the guest"
        )
