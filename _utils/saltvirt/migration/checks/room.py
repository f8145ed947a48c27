"""Memory and CPUs that the target has promised to nobody else, counted as placement counts."""

from saltvirt.placement import facts
from saltvirt.placement.filters import memory, vcpu


def reasons(guest, host, request):
    there = _target(guest, host, request)
    counts = guest["active"] or guest["autostart"]
    share = 1 if counts else request.placement.stopped_ratio
    wanted = facts.Request(guest["name"], guest["vcpus"], int(guest["memory_kib"] * share))
    for module in (vcpu, memory):
        why = module.reason(there, wanted, request.placement)
        if why:
            yield f"{host['hostname']}: {why}"


def _target(guest, host, request):
    """The target as placement sees it, with those that are on their way to it."""
    guests = [
        facts.Guest(
            domain["name"], domain["uuid"], domain["state"], domain["vcpus"],
            domain["memory_kib"], domain["autostart"],
        )
        for domain in host["domains"]
        if domain["uuid"] != guest["uuid"]
    ]  # fmt: skip
    arriving = [
        facts.Guest(a["name"], vcpus=a["vcpus"], memory_kib=a["memory_kib"])
        for a in host["arrivals"]
        if a["name"] != guest["name"]
    ]
    return facts.Host(
        name=host["hostname"], cpus=host["cpus"], memory_kib=host["memory_kib"],
        guests=tuple(guests), arriving=tuple(arriving), ratios=request.ratios,
    )  # fmt: skip
