"""Memory, CPUs and storage that the target has promised to nobody else, counted as placement
counts."""

from saltvirt.migration import storage
from saltvirt.migration.checks.storage import SLACK_BYTES
from saltvirt.placement import facts
from saltvirt.placement.filters import memory, vcpu
from saltvirt.units import human_bytes


def reasons(guest, host, request):
    if request.overcommit:
        return
    there = _target(guest, host, request)
    active = guest["active"] or guest["autostart"]
    wanted = facts.PlacementRequest(
        guest["name"], guest["vcpus"], guest["memory_kib"], hypervisor=guest["virt_type"],
        page_kib=guest.get("page_kib"), stopped=not active,
    )  # fmt: skip
    for module in (vcpu, memory):
        why = module.reason(there, wanted, request.placement)
        if why:
            yield f"{host['hostname']}: {why}"
    yield from _disks(guest, there, host, request)


def _disks(guest, there, host, request):
    """Folders where the disks could grow to more than is free and not promised to others."""
    needed = storage.needed(request.plans)
    for place, size in storage.promised(request.plans):
        free = host["free_bytes"].get(place)
        if free is None or free < needed[place] + SLACK_BYTES:
            continue  # not known; or the check of storage says it
        others = sum(
            bytes_ for one in host["reservations"] if one["name"] != guest["name"]
            for folder, bytes_ in one.get("disks", ()) if folder == place
        )  # fmt: skip
        promised = others + host.get("growth", {}).get(place, 0)
        left = max(0, free * there.ratio(request.placement, "disk") - promised)
        if size > left:
            yield (
                f"{host['hostname']}: {human_bytes(size)} of disk wanted in {place}, "
                f"{human_bytes(left)} free that are promised to nobody"
            )


def _target(guest, host, request):
    """The target as placement sees it, with those that are on their way to it."""
    guests = [
        facts.Guest.from_answer(domain, host["hostname"])
        for domain in host["domains"]
        if domain["uuid"] != guest["uuid"]
    ]
    arriving = [
        facts.Guest(
            a["name"], vcpus=a["vcpus"], memory_kib=a["memory_kib"], page_kib=a.get("page_kib")
        )
        for a in host["reservations"]
        if a["name"] != guest["name"]
    ]
    return facts.Host(
        name=host["hostname"], cpus=host["cpus"], memory_kib=host["memory_kib"],
        guests=tuple(guests), arriving=tuple(arriving), ratios=request.ratios,
        limits=request.limits, hugepages=host.get("hugepages") or {},
    )  # fmt: skip
