"""What the target must have before the guest comes: empty disks, images that thin ones need."""

from __future__ import annotations

from collections.abc import Iterable

from saltvirt.host.migration import backing_images
from saltvirt.host.migration.target_files import MigrationTarget
from saltvirt.migration import storage


def disks(target: MigrationTarget, plans: Iterable[storage.DiskPlan], active: bool) -> None:
    """Makes the volumes of all plans on the target.

    active: QEMU will fill them; else they are made when they are copied, but for block
    devices, which must be there. The volume that seeds the guest is copied here in both cases:
    libvirt copies no medium of a drive.
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
    """Copies the guest's own files on which a disk stands."""
    for base in plan.copied_files:
        target.report_step(f"copying {base.path}, on which disk {plan.target} stands")
        target.copy(base.path)


def variables(target: MigrationTarget, path: str) -> None:
    """The file of the firmware's variables. libvirt would make it, QEMU fills it when the guest
    comes: made by us it is known as ours."""
    target.copy(path)
