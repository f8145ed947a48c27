"""The target has unpromised memory, CPUs and storage, by the rules of placement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saltvirt.migration import storage
from saltvirt.migration.checks.storage import SLACK_BYTES
from saltvirt.migration.facts import GuestReport, TargetReport
from saltvirt.placement import facts
from saltvirt.placement.filters import memory, vcpu
from saltvirt.units import human_bytes

if TYPE_CHECKING:
    from saltvirt.migration.checks.request import CheckedMigration


def reasons(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> Iterator[str]:
    if request.overcommit:
        return
    target = _target(guest, host, request)
    active = guest.active or guest.autostart
    demand = facts.PlacementRequest(
        guest.name, guest.vcpus, guest.memory_kib, hypervisor=guest.virt_type or "kvm",
        page_kib=guest.page_kib, stopped=not active,
    )  # fmt: skip
    for module in (vcpu, memory):
        reason = module.reason(target, demand, request.placement)
        if reason:
            yield f"{host.hostname}: {reason}"
    yield from _disks(guest, target, host, request)


def _disks(
    guest: GuestReport, target: facts.Host, host: TargetReport, request: CheckedMigration
) -> Iterator[str]:
    """Yield the folders in which the disks could grow beyond the free space that is not promised to
    other guests."""
    needed = storage.required_space(request.plans)
    for directory, size in storage.promised_space(request.plans):
        free = host.free_bytes.get(directory)
        if free is None or free < needed[directory] + SLACK_BYTES:
            continue  # unknown, or reported by the check of storage
        reserved_bytes = sum(
            bytes_ for reservation in host.reservations if reservation.name != guest.name
            for folder, bytes_ in reservation.disks if folder == directory
        )  # fmt: skip
        promised_bytes = reserved_bytes + host.growth.get(directory, 0)
        available_bytes = max(0, free * target.ratio(request.placement, "disk") - promised_bytes)
        if size > available_bytes:
            yield (
                f"{host.hostname}: {human_bytes(size)} of disk requested in {directory}, "
                f"{human_bytes(available_bytes)} free and not promised to other guests"
            )


def _target(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> facts.Host:
    """Return the target as placement sees it, with the guests that are being moved to it."""
    guests = [domain.guest for domain in host.domains if domain.guest.uuid != guest.uuid]
    arriving = [
        facts.Guest(
            reservation.name,
            vcpus=reservation.vcpus,
            memory_kib=reservation.memory_kib,
            page_kib=reservation.page_kib,
        )
        for reservation in host.reservations
        if reservation.name != guest.name
    ]
    return facts.Host(
        name=host.hostname, cpus=host.cpus, memory_kib=host.memory_kib,
        guests=tuple(guests), arriving=tuple(arriving), ratios=request.ratios,
        limits=request.limits, hugepages=host.hugepages,
    )  # fmt: skip
