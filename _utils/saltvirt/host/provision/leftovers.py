"""Leftovers of interrupted operations on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.answers.creation import Phase
from saltvirt.answers.guests import Leftovers
from saltvirt.host import connection
from saltvirt.host.domain import creation, guest_lock, lookup, metadata
from saltvirt.host.migration import move_journal, target_leftovers, unreachable_target
from saltvirt.host.provision import disk_journal

if TYPE_CHECKING:
    import libvirt


def read(conn: libvirt.virConnect, locks: str) -> Leftovers:
    """Return the answer of ``virt.leftovers``.

    locks: the folder of the guest locks.
    """
    guests = lookup.states(conn)
    unfinished = _interrupted(conn)
    return Leftovers(
        guests=guests,
        unfinished=tuple(sorted(unfinished)),
        used={name: evidence for name, evidence in unfinished.items() if evidence},
        migrations=move_journal.unfinished(),
        at_work=guest_lock.owners(locks),
        purgeable=tuple(unreachable_target.leftover_keys(move_journal.FOLDER)),
        target_leftovers=tuple(target_leftovers.names()),
        operations=operations(conn),
        orphaned_disks=disk_journal.unfinished(conn),
    )


def _interrupted(conn: libvirt.virConnect) -> dict[str, str | None]:
    """Return {interrupted guest: evidence that it was started, or None}."""
    evidence_by_name = {}
    for dom in conn.listAllDomains():
        with connection.skip_undefined():
            if creation.of_domain(dom) is Phase.INTERRUPTED:
                evidence_by_name[dom.name()] = creation.evidence_of_use(dom)
    return evidence_by_name


def operations(conn: libvirt.virConnect) -> dict[str, str]:
    """Return {guest: operation id that the runner stored in its record}."""
    operation_ids = {}
    for dom in conn.listAllDomains():
        with connection.skip_undefined():
            entries = {entry.key: entry.value for entry in metadata.of_domain(dom).entries}
            operation_ids[dom.name()] = entries.get("operation")
    return {name: value for name, value in operation_ids.items() if value}
