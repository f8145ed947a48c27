"""Check whether a guest that is off can be running on a host that does not answer. If both could
write to the same disks, the guest is not started."""

from __future__ import annotations

from saltvirt import errors
from saltvirt.answers.guest_calls import SHARED_DISKS, NamedGuestRequest
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find, shared_storage_check, unique


def unheard_hosts(fleet: Fleet, locations: find.Locations, name: str) -> list[str]:
    """Return the hosts that may have the guest and did not answer, each with the reason. locations:
    of all hosts.

    If only libvirt does not answer, its files have the names. On a master of masters, a silent host
    may be entirely unknown.
    """
    silent = unique.silent(fleet, name, locations.unreachable) if locations.unreachable else {}
    silent.update(shared_storage_check.unmatched(fleet.opts, fleet.hosts()))
    reasons = [f"{host}: {reason}" for host, reason in sorted(silent.items())]
    return reasons + ([find.BELOW_SYNDIC] if fleet.opts.get("order_masters") else [])


def check(
    fleet: Fleet, locations: find.Locations, name: str, host: str, override_arg: str | None = None
) -> None:
    """Raise OperationFailed unless no silent host can reach the disks of the guest on ``host``.

    locations: of all hosts. override_arg: the argument with which the operator confirms that the
    guest runs nowhere else, if the operation has one.
    """
    reasons = unheard_hosts(fleet, locations, name)
    if not reasons:
        return
    for path, reason in sorted(SHARED_DISKS.ask(fleet, host, NamedGuestRequest(name)).items()):
        raise errors.OperationFailed(
            f"{name} stays as it is on {host}: other hosts may use its disk {path} ({reason}), and "
            f"it may run on one that does not answer: {'; '.join(reasons)}; wait for that"
            + (
                f", or give {override_arg} if you know that it runs nowhere else"
                if override_arg
                else ""
            )
        )
