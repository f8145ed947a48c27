"""Migrations that were broken off: what there is of them, and ending one."""

from __future__ import annotations

from dataclasses import replace

from saltvirt import errors, names
from saltvirt.answers.migration import Recovered
from saltvirt.fleet import answer
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import ending, keepers, lock, migrate, target_leftovers
from saltvirt.operations.ending import Unfinished
from saltvirt.operations.report import Report


def recover(
    fleet: Fleet, name: str, report: Report, lost: str | None = None, removed: bool = False
) -> tuple[str | None, Recovered]:
    """Ends a broken-off migration of the guest, and has its targets cleaned; (the host it began
    on, None where only a target has something of it; what that host says, with what was deleted
    and is left on the targets).

    lost, removed: see the host's ``virt.migrate_recover``. Raises InvalidInput when the host that
    is said to be lost answers and has the guest.
    """
    name = names.guest(str(name))
    with lock.guest(fleet.opts, name, "virt.migrate_recover"):
        keepers.refuse(fleet.opts, name)
        seen = migrate.locations(fleet)
        host = seen.unfinished.get(name) or _left_by(fleet, name)
        if host is None and (lost or name not in seen.target_leftovers):
            raise errors.OperationFailed(_none_unfinished(name, seen))
        if lost:
            said = _refuse_living(fleet, name, lost, seen, host)
            report.step(
                "lost",
                f"{name}: its migration ends without {lost}, which the operator declared lost"
                + said,
            )
        found = Recovered()
        if host:
            dead = str(lost) if lost else None
            found = ending.ended(fleet, host, name, seen.hosts, dead, removed)
        gone, stay, left = target_leftovers.everywhere(fleet, name)
        known = {*gone, *stay}
        found = replace(
            found,
            deleted=(*found.deleted, *gone),
            left={**found.left_on, **left},
            kept={path: why for path, why in found.kept.items() if path not in known},
        )
        if host:
            rebind_key(fleet, name, host)
        return host, found


def rebind_key(fleet: Fleet, name: str, host: str) -> None:
    """Binds the guest's key to the one host that has the guest now, if it was bound to ``host``, on
    which its migration began."""
    places = sorted(migrate.locations(fleet).guests.get(name, {}))
    if len(places) == 1:
        KeyStore(fleet.opts).moved(name, host, places[0])


def _refuse_living(
    fleet: Fleet, name: str, lost: str, seen: migrate.MigrationLocations, source: str | None
) -> str:
    """What the minion of the host that is said to be lost says, in words. Raises InvalidInput where
    that host has the guest; also where its libvirt is silent and the guest's process lives. An
    address may be that of any host but the source: all are asked then."""
    state = seen.guests.get(name, {}).get(lost)
    if state:
        raise errors.InvalidInput(f"{lost} answers, and {name} is {state} there")
    hosts = fleet.hosts()
    asked = [lost] if lost in hosts else [one for one in hosts if one != source]
    answers = fleet.gather(asked, "virt.running_names") if asked else {}
    for host, told in answers.items():
        if told.ok and name in (told.data or ()):
            raise errors.InvalidInput(
                f"{host} is not lost: its minion answers, and the process of {name} lives there; "
                "start libvirt there, or end that process"
            )
    if lost in answers and answers[lost].ok:
        return f"; its minion answers: no process of {name} lives there by libvirt's files"
    return ""


def _none_unfinished(name: str, seen: migrate.MigrationLocations) -> str:
    text = f"no host that answers has an unfinished migration of {name}"
    silent = ", ".join(f"{host}: {why}" for host, why in sorted(seen.unreachable.items()))
    return f"{text}; not asked: {silent}" if silent else text


def _left_by(fleet: Fleet, name: str) -> str | None:
    """The host that knows of something left for the guest on a host that did not answer."""
    found = unfinished(fleet)[0]
    return next((host for host, known in found.items() for k in known if k.startswith(f"{name}@")),
                None)  # fmt: skip


def unfinished(fleet: Fleet) -> tuple[dict[str, Unfinished], dict[str, str]]:
    """(host to what its ``virt.migrate_unfinished`` says, host to why it did not answer)."""
    answers = fleet.ask(fleet.hosts(), "virt.migrate_unfinished")
    found, unreachable = answer.facts(answers, ending.unfinished)
    return {host: known for host, known in found.items() if known}, unreachable


def recovered(name: str, host: str | None, found: Recovered) -> str:
    """What ``virt.migrate_recover`` of the host did, as a sentence."""
    left = [f"something may be left on {on}: {why}" for on, why in sorted(found.left_on.items())]
    undone = f"{name} is on {host}" if left else f"{name} is on {host}; the target was cleaned"
    moved = f"{name} is on {found.target or 'the target'}" + (
        "" if found.kept else f"; {host} was cleaned"
    )
    gone = f"{name} was removed, and its migration from {host} is ended"
    outcomes = {migrate.MOVED: moved, "undone": undone, "removed": gone}
    kept = [target_leftovers.words(found.kept)] if found.kept else []
    again = [target_leftovers.again(name)] if left else []
    nothing = f"{name}: there was no unfinished migration"
    return "; ".join([outcomes.get(found.outcome, nothing), *kept, *left, *again])


def listed(found: dict[str, Unfinished], unreachable: dict[str, str]) -> str:
    """What ``unfinished`` found, as a sentence."""
    guests = sorted({name for known in found.values() for name in known})
    parts = [", ".join(guests) or "no migration is unfinished"]
    return "; ".join(
        parts + [f"{host} was not asked: {why}" for host, why in sorted(unreachable.items())]
    )
