"""What operations that died have left on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from saltvirt.host import connection
from saltvirt.host.domain import guest_lock, lookup, metadata
from saltvirt.host.migration import move_journal, target_leftovers, unreachable_target
from saltvirt.host.provision import admission, disk_notes

if TYPE_CHECKING:
    import libvirt


class Leftovers(TypedDict):
    """guests: name to state. unfinished, left, target_leftovers: names. at_work: guest to who is at
    work on it. operations: guest to the runner's that made it. made: guest to the disks of
    operations that died."""

    guests: dict[str, str]
    unfinished: list[str]
    migrations: dict[str, Any]
    at_work: dict[str, str]
    left: list[str]
    target_leftovers: list[str]
    operations: dict[str, str]
    made: dict[str, dict[str, Any]]


def read(conn: libvirt.virConnect, locks: str) -> Leftovers:
    """``guests``, ``unfinished`` and the rest; see ``virt.leftovers``. locks: the folder of the
    guests' locks."""
    guests = lookup.states(conn)
    return {
        "guests": guests,
        "unfinished": sorted(name for name in guests if admission.leftover(conn, name)),
        "migrations": move_journal.unfinished(),
        "at_work": guest_lock.owners(locks),
        "left": unreachable_target.noted(move_journal.FOLDER),
        "target_leftovers": target_leftovers.names(),
        "operations": operations(conn),
        "made": disk_notes.unfinished(conn),
    }


def operations(conn: libvirt.virConnect) -> dict[str, str]:
    """Guest to what the runner that made it wrote into its record."""
    found = {}
    for dom in conn.listAllDomains():
        with connection.unless_gone():
            entries = {entry.key: entry.value for entry in metadata.of_domain(dom).entries}
            found[dom.name()] = entries.get("operation")
    return {name: value for name, value in found.items() if value}
