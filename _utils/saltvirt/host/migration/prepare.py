"""Prepare the target: create empty disks, and copy the images that thin disks need."""

from __future__ import annotations

from collections.abc import Iterable

from saltvirt.host.migration import backing_images
from saltvirt.host.migration.target_files import MigrationTarget
from saltvirt.migration import storage


def disks(target: MigrationTarget, plans: Iterable[storage.DiskPlan], active: bool) -> None:
    """Create the volumes of all plans on the target.

    active: QEMU will fill them; otherwise they are created when they are copied, except for block
    devices, which must exist. The cloud-init volume is copied in both cases, because libvirt does
    not copy media.
    """
    for plan in plans:
        for base in plan.bases:
            backing_images.transfer(target, base)
        if plan.method == storage.SEED:
            target.copy(plan.target_path, source=plan.path)
        if active:
            copy_owned_files(target, plan)
        if active and plan in storage.copied_plans(plans):
            target.create_file(plan.target_path, plan.format, plan.size_bytes, plan.backing)


def copy_owned_files(target: MigrationTarget, plan: storage.DiskPlan) -> None:
    """Copy the guest's own backing files of a disk."""
    for base in plan.copied_files:
        target.report_step(f"copying {base.path}, the backing file of disk {plan.target}")
        target.copy(base.path)


def variables(target: MigrationTarget, path: str) -> None:
    """Copy the file of firmware variables. libvirt would create it, and QEMU fills it when the
    guest arrives; a file that we created is known as ours."""
    target.copy(path)
