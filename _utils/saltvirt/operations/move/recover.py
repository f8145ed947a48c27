"""List interrupted migrations, and end them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from saltvirt import errors, names
from saltvirt.answers.guest_calls import RUNNING_NAMES, HostRequest
from saltvirt.answers.migration import RecoveryResult, UnfinishedMigration
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.migration import transport
from saltvirt.migration.calls import LIST_UNFINISHED, PLAN_CLEANUP, CleanPlanRequest
from saltvirt.operations.cluster import ha_provider
from saltvirt.operations.core.operation import Checked, Reasons
from saltvirt.operations.core.report import Report
from saltvirt.operations.journal import lock
from saltvirt.operations.move import migrate, migration_end, target_leftovers
from saltvirt.operations.move.migration_end import Unfinished


def recover(
    fleet: Fleet, name: str, report: Report, lost: str | None = None, removed: bool = False
) -> tuple[str | None, RecoveryResult]:
    """End an interrupted migration of the guest, and clean its targets. Return (the source; None if
    only a target has leftovers; the source's answer, with what was deleted and left on the
    targets).

    lost, removed: see the host's ``virt.migrate_recover``. Raises InvalidInput if the host that is
    declared lost answers and has the guest.
    """
    name = names.guest(str(name))
    with lock.guest(fleet.opts, name, "virt.migrate_recover"):
        ha_provider.refuse_managed(fleet.opts, name)
        guest_locations = migrate.locations(fleet)
        host = guest_locations.unfinished.get(name) or _leftover_source(fleet, name)
        if host is None and (lost or name not in guest_locations.target_leftovers):
            raise errors.OperationFailed(_none_unfinished(name, guest_locations))
        if lost:
            minion_note = _refuse_living(fleet, name, lost, guest_locations, host)
            report.step(
                "lost",
                f"{name}: its migration ends without {lost}, which the operator declared lost"
                + minion_note,
            )
        recovery = RecoveryResult()
        if host:
            lost_host = str(lost) if lost else None
            recovery = migration_end.end_migration(
                fleet, host, name, guest_locations.hosts, lost_host, removed
            )
        deleted, retained, leftovers = target_leftovers.clean_everywhere(fleet, name)
        target_paths = {*deleted, *retained}
        recovery = replace(
            recovery,
            deleted=(*recovery.deleted, *deleted),
            leftovers={**recovery.leftovers_by_host, **leftovers},
            retained={
                path: reason
                for path, reason in recovery.retained.items()
                if path not in target_paths
            },
        )
        if host:
            rebind_key(fleet, name, host)
        return host, recovery


def check(fleet: Fleet, name: str, lost: str | None = None) -> Checked:
    """Return which migration :func:`recover` would end, or every reason against it. Changes
    nothing. lost: see :func:`recover`."""
    reasons = Reasons()
    with reasons:
        name = names.guest(str(name))
        with reasons:
            ha_provider.refuse_managed(fleet.opts, name)
        guest_locations = migrate.locations(fleet)
        host, migration = _source_of(fleet, name, guest_locations)
        if host is None and (lost or name not in guest_locations.target_leftovers):
            raise errors.OperationFailed(_none_unfinished(name, guest_locations))
        if migration and migration.at_work:
            raise errors.OperationFailed(
                f"the migration of {name} from {host} is under way: salt-run virt.migrate_abort "
                f"{name} aborts it"
            )
        if lost:
            with reasons:
                _refuse_living(fleet, name, lost, guest_locations, host)
        reasons.raise_first()
        comment = "; ".join(_planned_texts(fleet, name, guest_locations, host, migration))
        return Checked(name, comment, details={"host": host} if host else {})
    return reasons.checked(str(name))


def _source_of(
    fleet: Fleet, name: str, guest_locations: migrate.MigrationLocations
) -> tuple[str | None, UnfinishedMigration | None]:
    """Return (the source of the guest's interrupted migration, or None; its record there)."""
    host = guest_locations.unfinished.get(name)
    host = host or _leftover_source(fleet, name)
    migrations = unfinished(fleet)[0].get(host or "", {})
    records = [migrations[word] for word in sorted(migrations) if word.split("@")[0] == name]
    return host, records[0] if records else None


def _planned_texts(
    fleet: Fleet,
    name: str,
    guest_locations: migrate.MigrationLocations,
    host: str | None,
    migration: UnfinishedMigration | None,
) -> Iterator[str]:
    """Yield what :func:`recover` would do."""
    if host:
        target = ""
        with contextlib.suppress(errors.InvalidInput):
            target = f" to {transport.parse(migration.target).host}" if migration else ""
        yield f"the migration of {name} from {host}{target} would be ended"
    states = guest_locations.guests.get(name, {})
    for other_host, state in sorted(states.items()):
        yield f"{name} is {state} on {other_host}"
    if host and not states:
        silent = guest_locations.unreachable_text()
        yield (
            f"no host that answers ({silent}) has {name}"
            if silent
            else f"no host has {name}: give removed=True if it was removed on purpose"
        )
    for other_host in guest_locations.target_leftovers.get(name, []):
        try:
            plan = PLAN_CLEANUP.ask(fleet, other_host, CleanPlanRequest(name))
        except errors.VirtError as exc:
            yield f"files may be left on {other_host}: {exc.text}"
            continue
        if plan.delete:
            yield f"{other_host} would delete {', '.join(plan.delete)}"
        if plan.keep:
            yield f"on {other_host} {target_leftovers.retained_text(plan.keep)}"


def rebind_key(fleet: Fleet, name: str, host: str) -> None:
    """Bind the guest's key to the only host that has the guest, if it was bound to ``host``, the
    source of its migration."""
    places = sorted(migrate.locations(fleet).guests.get(name, {}))
    if len(places) == 1:
        KeyStore(fleet.opts).rebind(name, host, places[0])


def _refuse_living(
    fleet: Fleet,
    name: str,
    lost: str,
    guest_locations: migrate.MigrationLocations,
    source: str | None,
) -> str:
    """Return a note about the minion of the host that is declared lost. Raises InvalidInput if that
    host has the guest; also if its libvirt does not answer and the guest's process is running. An
    address can belong to any host but the source: then all are asked."""
    state = guest_locations.guests.get(name, {}).get(lost)
    if state:
        raise errors.InvalidInput(f"{lost} answers, and {name} is {state} there")
    hosts = fleet.hosts()
    query_hosts = (
        [lost] if lost in hosts else [candidate for candidate in hosts if candidate != source]
    )
    running, _ = RUNNING_NAMES.gather(fleet, query_hosts, HostRequest())
    for host, guest_names in sorted(running.items()):
        if name in guest_names:
            raise errors.InvalidInput(
                f"{host} is not lost: its minion answers, and the process of {name} is running "
                "there; start libvirt there, or end that process"
            )
    if lost in running:
        return f"; its minion answers: by libvirt's files, no process of {name} is running there"
    return ""


def _none_unfinished(name: str, guest_locations: migrate.MigrationLocations) -> str:
    text = f"no host that answers has an unfinished migration of {name}"
    silent = ", ".join(
        f"{host}: {reason}" for host, reason in sorted(guest_locations.unreachable.items())
    )
    return f"{text}; not asked: {silent}" if silent else text


def _leftover_source(fleet: Fleet, name: str) -> str | None:
    """Return the host with a record of files that were left on a target that did not answer."""
    migrations = unfinished(fleet)[0]
    return next((host for host,
    host_migrations in migrations.items() for k in host_migrations if k.startswith(f"{name}@")),
                None)  # fmt: skip


def unfinished(fleet: Fleet) -> tuple[dict[str, Unfinished], dict[str, str]]:
    """Return (host to its ``virt.migrate_unfinished``, host to why it did not answer)."""
    migrations, unreachable = LIST_UNFINISHED.gather(fleet, fleet.hosts(), HostRequest())
    return {
        host: host_migrations for host, host_migrations in migrations.items() if host_migrations
    }, unreachable


def recovery_text(name: str, host: str | None, recovery: RecoveryResult) -> str:
    """Return the result of the host's ``virt.migrate_recover`` as a sentence."""
    leftovers = [
        f"files may be left on {on}: {reason}"
        for on, reason in sorted(recovery.leftovers_by_host.items())
    ]
    undone = f"{name} is on {host}" if leftovers else f"{name} is on {host}; the target was cleaned"
    moved = f"{name} is on {recovery.target or 'the target'}" + (
        "" if recovery.retained else f"; {host} was cleaned"
    )
    removed = f"{name} was removed, and its migration from {host} has ended"
    outcomes = {migrate.MOVED: moved, "undone": undone, "removed": removed}
    retained = [target_leftovers.retained_text(recovery.retained)] if recovery.retained else []
    next_steps = [target_leftovers.retry_hint(name)] if leftovers else []
    nothing = f"{name}: it has no unfinished migration"
    return "; ".join([outcomes.get(recovery.outcome, nothing), *retained, *leftovers, *next_steps])


def unfinished_text(migrations: dict[str, Unfinished], unreachable: dict[str, str]) -> str:
    """Return the answer of ``unfinished`` as a sentence."""
    guests = sorted({name for host_migrations in migrations.values() for name in host_migrations})
    listed = ", ".join(guests)
    parts = [f"unfinished migrations: {listed}" if guests else "no migration is unfinished"]
    return "; ".join(
        parts + [f"{host} was not asked: {reason}" for host, reason in sorted(unreachable.items())]
    )
