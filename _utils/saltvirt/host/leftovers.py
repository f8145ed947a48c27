"""What operations that died have left on this host."""

from saltvirt.host import admit, domain, migrate_journal
from saltvirt.host.connection import unless_gone


def read(conn):
    """``guests``, ``unfinished`` and ``migrations``; see ``virt.leftovers``."""
    guests = {}
    for dom in conn.listAllDomains():
        with unless_gone():
            guests[dom.name()] = domain.state(dom)
    return {
        "guests": guests,
        "unfinished": sorted(name for name in guests if admit.leftover(conn, name)),
        "migrations": migrate_journal.unfinished(),
    }
