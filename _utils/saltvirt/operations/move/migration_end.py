"""End an interrupted migration on its source, with the locations of the guest on all other hosts:
the source's own libvirt and the target's would not find a guest that has migrated further."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from saltvirt import errors
from saltvirt.answers.guest_calls import HostRequest
from saltvirt.answers.guests import MigrationFacts
from saltvirt.answers.migration import RecoveryResult, UnfinishedMigration
from saltvirt.fleet.client import Fleet
from saltvirt.migration import transport
from saltvirt.migration.calls import LIST_UNFINISHED, RECOVER_MIGRATION, RecoverRequest

# the guest's name, or NAME@HOST, to its migration
Unfinished = dict[str, UnfinishedMigration]


def end_migration(
    fleet: Fleet,
    host: str,
    name: str,
    host_facts: Mapping[str, MigrationFacts],
    lost: str | None = None,
    removed: bool = False,
) -> RecoveryResult:
    """Return the host's answer. host_facts: the answers of all hosts that answered. lost, removed:
    see the host's ``virt.migrate_recover``. Raises as Fleet.call does."""
    elsewhere = tuple(_elsewhere(fleet, host, name, host_facts))
    request = RecoverRequest(vm_=name, lost=lost, elsewhere=elsewhere, removed=removed)
    return RECOVER_MIGRATION.ask(fleet, host, request)


def _elsewhere(
    fleet: Fleet, host: str, name: str, host_facts: Mapping[str, MigrationFacts]
) -> list[str]:
    """Return the hosts that have the guest, under any name, besides the two hosts of the
    migration."""
    migrations, _ = LIST_UNFINISHED.gather(fleet, [host], HostRequest())
    migration = migrations.get(host, {}).get(name)
    if migration is None or migration.uuid is None:
        return []
    two = {host}
    with contextlib.suppress(errors.InvalidInput):
        two.add(transport.parse(migration.target).host)
    return sorted(
        candidate
        for candidate, candidate_facts in host_facts.items()
        if candidate not in two and migration.uuid in candidate_facts.uuids.values()
    )
