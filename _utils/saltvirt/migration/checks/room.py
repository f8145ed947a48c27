"""Memory, CPUs and storage that the target has promised to nobody else, counted as placement
counts."""

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
    from saltvirt.migration.checks import CheckedMigration


def reasons(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> Iterator[str]:
    if request.overcommit:
        return
    there = _target(guest, host, request)
    active = guest.active or guest.autostart
    wanted = facts.PlacementRequest(
        guest.name, guest.vcpus, guest.memory_kib, hypervisor=guest.virt_type or "kvm",
        page_kib=guest.page_kib, stopped=not active,
    )  # fmt: skip
    for module in (vcpu, memory):
        why = module.reason(there, wanted, request.placement)
        if why:
            yield f"{host.hostname}: {why}"
    yield from _disks(guest, there, host, request)


def _disks(
    guest: GuestReport, there: facts.Host, host: TargetReport, request: CheckedMigration
) -> Iterator[str]:
    """Folders where the disks could grow to more than is free and not promised to others."""
    needed = storage.needed(request.plans)
    for place, size in storage.promised(request.plans):
        free = host.free_bytes.get(place)
        if free is None or free < needed[place] + SLACK_BYTES:
            continue  # not known; or the check of storage says it
        others = sum(
            bytes_ for one in host.reservations if one.name != guest.name
            for folder, bytes_ in one.disks if folder == place
        )  # fmt: skip
        promised = others + host.growth.get(place, 0)
        left = max(0, free * there.ratio(request.placement, "disk") - promised)
        if size > left:
            yield (
                f"{host.hostname}: {human_bytes(size)} of disk wanted in {place}, "
                f"{human_bytes(left)} free that are promised to nobody"
            )


def _target(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> facts.Host:
    """The target as placement sees it, with those that are on their way to it."""
    guests = [domain.guest for domain in host.domains if domain.guest.uuid != guest.uuid]
    arriving = [
        facts.Guest(one.name, vcpus=one.vcpus, memory_kib=one.memory_kib, page_kib=one.page_kib)
        for one in host.reservations
        if one.name != guest.name
    ]
    return facts.Host(
        name=host.hostname, cpus=host.cpus, memory_kib=host.memory_kib,
        guests=tuple(guests), arriving=tuple(arriving), ratios=request.ratios,
        limits=request.limits, hugepages=host.hugepages,
    )  # fmt: skip
