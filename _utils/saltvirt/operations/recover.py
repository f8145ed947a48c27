"""Migrations that were broken off: what there is of them, and ending one."""

from __future__ import annotations

from typing import Any

from saltvirt import errors, names
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import lock, migrate, target_leftovers
from saltvirt.operations.report import Report


def recover(
    fleet: Fleet, name: str, report: Report, lost: str | None = None
) -> tuple[str | None, dict[str, Any]]:
    """Ends a broken-off migration of the guest, and has its targets cleaned; (the host it began
    on, None where only a target has something of it; what that host says, with what was deleted
    and is left on the targets).

    lost: see the host's ``virt.migrate_recover``. Raises InvalidInput when the host that is said
    to be lost answers and has the guest.
    """
    name = names.guest(str(name))
    with lock.guest(fleet.opts, name, "virt.migrate_recover"):
        seen = migrate.locations(fleet)
        host = seen.unfinished.get(name) or _left_by(fleet, name)
        if host is None and (lost or name not in seen.target_leftovers):
            raise errors.OperationFailed(_none_unfinished(name, seen))
        asked = {"vm_": name}
        if lost:
            state = seen.guests.get(name, {}).get(lost)
            if state:
                raise errors.InvalidInput(f"{lost} answers, and {name} is {state} there")
            report.step(
                "lost",
                f"{name}: its migration ends without {lost}, which the operator declared lost",
            )
            asked["lost"] = str(lost)
        found: dict[str, Any] = {"left": {}, "deleted": []}
        if host:
            found |= fleet.one(host, "virt.migrate_recover", asked, long=True)
        gone, stay, left = target_leftovers.everywhere(fleet, name)
        found["deleted"] = [*found["deleted"], *gone]
        found["left"] = {**found["left"], **left}
        known = {*gone, *stay}
        found["kept"] = {p: why for p, why in found.get("kept", {}).items() if p not in known}
        places = sorted(migrate.locations(fleet).guests.get(name, {}))
        if host and len(places) == 1:
            KeyStore(fleet.opts).moved(name, host, places[0])
        return host, found


def _none_unfinished(name: str, seen: migrate.MigrationLocations) -> str:
    text = f"no host that answers has an unfinished migration of {name}"
    silent = ", ".join(f"{host}: {why}" for host, why in sorted(seen.unreachable.items()))
    return f"{text}; not asked: {silent}" if silent else text


def _left_by(fleet: Fleet, name: str) -> str | None:
    """The host that knows of something left for the guest on a host that did not answer."""
    found = unfinished(fleet)[0]
    return next((host for host, known in found.items() for k in known if k.startswith(f"{name}@")),
                None)  # fmt: skip


def unfinished(fleet: Fleet) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """(host to what its ``virt.migrate_unfinished`` says, host to why it did not answer)."""
    found: dict[str, dict[str, Any]] = {}
    unreachable: dict[str, str] = {}
    for answer in fleet.ask(fleet.hosts(), "virt.migrate_unfinished"):
        if answer.error is not None:
            unreachable[answer.host] = answer.error
        elif answer.data:
            found[answer.host] = answer.data
    return found, unreachable


def recovered(name: str, host: str | None, found: dict[str, Any]) -> str:
    """What ``virt.migrate_recover`` of the host did, as a sentence."""
    left = [f"something may be left on {on}: {why}" for on, why in sorted(found["left"].items())]
    undone = f"{name} is on {host}" if left else f"{name} is on {host}; the target was cleaned"
    outcomes = {migrate.MOVED: f"{name} is on the target; {host} was cleaned", "undone": undone}
    kept = [target_leftovers.words(found["kept"])] if found.get("kept") else []
    again = [target_leftovers.again(name)] if left else []
    nothing = f"{name}: there was no unfinished migration"
    return "; ".join([outcomes.get(str(found.get("outcome")), nothing), *kept, *left, *again])


def listed(found: dict[str, dict[str, Any]], unreachable: dict[str, str]) -> str:
    """What ``unfinished`` found, as a sentence."""
    guests = sorted({name for known in found.values() for name in known})
    parts = [", ".join(guests) or "no migration is unfinished"]
    return "; ".join(
        parts + [f"{host} was not asked: {why}" for host, why in sorted(unreachable.items())]
    )
