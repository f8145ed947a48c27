"""What operations that died have left on this host."""

from saltvirt.host import admit, domain, migrate_journal


def read(conn):
    """``guests``, ``unfinished`` and ``migrations``; see ``virt.leftovers``."""
    guests = domain.states(conn)
    return {
        "guests": guests,
        "unfinished": sorted(name for name in guests if admit.leftover(conn, name)),
        "migrations": migrate_journal.unfinished(),
    }
