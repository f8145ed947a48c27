"""What operations that died have left on this host."""

from saltvirt.host import admit, domain, migrate_journal, migrate_left


def read(conn):
    """``guests``, ``unfinished`` and ``migrations``; see ``virt.leftovers``."""
    guests = domain.states(conn)
    return {
        "guests": guests,
        "unfinished": sorted(name for name in guests if admit.leftover(conn, name)),
        "migrations": migrate_journal.unfinished(),
        "left": sorted(migrate_left.all_of(migrate_journal.FOLDER)),
    }
