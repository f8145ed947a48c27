"""May a guest that is off here run on a host that does not answer? Where that could write to the
same disks, it is not started here on the strength of a silence."""

from __future__ import annotations

from saltvirt import errors
from saltvirt.fleet.client import Fleet
from saltvirt.operations import find, proof, unique


def unheard(fleet: Fleet, locations: find.Locations, name: str) -> list[str]:
    """The hosts that may have the guest and did not say so, each with why. locations: of all hosts.

    Where only libvirt is silent its files tell the names. On a master of masters a host that is
    silent is not even known.
    """
    silent = unique.silent(fleet, name, locations.unreachable) if locations.unreachable else {}
    silent.update(proof.unmatched(fleet.opts, fleet.hosts()))
    where = [f"{one}: {why}" for one, why in sorted(silent.items())]
    return where + ([find.BELOW] if fleet.opts.get("order_masters") else [])


def check(
    fleet: Fleet, locations: find.Locations, name: str, host: str, known: str | None = None
) -> None:
    """Raises OperationFailed unless no silent host can have the disks of the guest on ``host``.

    locations: of all hosts. known: the argument by which a person says that the guest runs nowhere
    else, where the operation has one.
    """
    where = unheard(fleet, locations, name)
    if not where:
        return
    for path, why in sorted(fleet.one(host, "virt.shared_disks", {"vm_": name}).items()):
        raise errors.OperationFailed(
            f"{name} stays as it is on {host}: other hosts may have its disk {path} ({why}), and "
            f"it may run on one that does not answer: {'; '.join(where)}; wait for that"
            + (f", or give {known} when you know that it runs nowhere else" if known else "")
        )
