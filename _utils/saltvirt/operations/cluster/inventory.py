"""Inventories of all hosts, for placement and for operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saltvirt import errors
from saltvirt.fleet.client import Fleet
from saltvirt.placement import account, choose, facts
from saltvirt.placement.calls import INVENTORY, InventoryRequest
from saltvirt.placement.policy import PlacementPolicy

OTHER_VERSION = (
    "answers in the format of another version of Salt Virt: salt {host} saltutil.sync_all"
)

# the smallest possible request
_MINIMAL_REQUEST = facts.PlacementRequest(
    "-", 1, 1, prefer={"-": "-"}, groups=("-",), by_profile=True
)


def gather(
    fleet: Fleet,
    hosts: list[str] | None = None,
    guest: dict[str, Any] | None = None,
    patient: bool = False,
) -> tuple[list[facts.Host], dict[str, str]]:
    """Return (inventories, host to why it has none).

    guest: arguments of ``virt.init``; each Host then has the Needs of that guest. patient: wait for
    busy hosts, as Fleet.ask does.
    """
    inventories, unreachable = INVENTORY.gather(
        fleet, hosts or fleet.hosts(), InventoryRequest(guest), patient=patient
    )
    responding = []
    for name, inventory in inventories.items():
        host = checked_host(name, inventory)
        if isinstance(host, facts.Host):
            responding.append(host)
        else:
            unreachable[name] = host
    return account.joined(sorted(responding, key=lambda h: h.name)), unreachable


def checked_host(name: str, inventory: facts.Inventory) -> facts.Host | str:
    """Return the host of an inventory, without storage shared with other hosts; or why placement
    cannot use the inventory."""
    try:
        return _usable_host(facts.host_of(name, inventory))
    except errors.InvalidInput as exc:  # what its own configuration has wrong
        return exc.text
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError):
        return OTHER_VERSION.format(host=name)


def _usable_host(host: facts.Host) -> facts.Host:
    """Return the host if placement can use all of its values. This finds an invalid value as an
    error of that host, not while a guest is placed on another one."""
    policy = PlacementPolicy()
    [single] = account.joined([host])
    summary(single, policy)
    account.terms(single, policy)
    for arch in {None, single.arch or None}:
        choose.choose([single, single], replace(_MINIMAL_REQUEST, arch=arch), policy)
    for guest in single.guests:
        facts.of_guest(guest, single)
    return host


def terms(fleet: Fleet, host: str, policy: PlacementPolicy) -> account.PlacementTerms:
    """Return the placement terms that accompany a request to a host: see placement.account.
    Promises of hosts that did not answer are missing."""
    hosts, _ = gather(fleet)
    return account.terms(
        next((candidate for candidate in hosts if candidate.name == host), None), policy
    )


def summaries(
    hosts: list[facts.Host], unreachable: dict[str, str], policy: PlacementPolicy
) -> dict[str, Any]:
    """Return the data of ``virt.host_info``, with the reason for each host without an inventory."""
    by_host = {host.name: summary(host, policy) for host in hosts}
    by_host.update({name: {"error": reason} for name, reason in unreachable.items()})
    return by_host


def summary(host: facts.Host, policy: PlacementPolicy) -> dict[str, Any]:
    """Return one host's data in ``virt.host_info``; memory in MiB, disk in GiB."""
    vcpus, memory_kib = host.used(policy, "vcpus"), host.used(policy, "memory_kib")
    gib = 1024**3
    return {
        "cpus": host.cpus,
        "vcpus_used": round(vcpus),
        "vcpus_free": max(0, int(host.free_vcpus(policy))),
        "memory_mib": host.memory_kib // 1024,
        "memory_used_mib": round(memory_kib / 1024),
        "memory_free_mib": max(0, int(host.free_memory_kib(policy) / 1024)),
        "disk_gib": round(host.disk_total_bytes / gib, 1),
        "disk_free_gib": round(max(0, host.free_disk_bytes(policy)) / gib, 1),
        "guests": len(host.guests),
        "running": sum(1 for g in host.guests if g.state == "running"),
        "creating": [g.name for g in host.guests if g.creating],
        "types": list(host.types),
        "maintenance": host.maintenance,
        "disk_profiles": list(host.disk_profiles),
        "nic_profiles": list(host.nic_profiles),
    }
