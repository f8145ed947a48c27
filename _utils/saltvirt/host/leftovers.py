"""What operations that died have left on this host."""

from saltvirt.host import admit, domain, guest_lock, migrate_journal, migrate_left


def read(conn, locks):
    """``guests``, ``unfinished`` and the rest; see ``virt.leftovers``. locks: the folder of the
    guests' locks."""
    guests = domain.states(conn)
    return {
        "guests": guests,
        "unfinished": sorted(name for name in guests if admit.leftover(conn, name)),
        "migrations": migrate_journal.unfinished(),
        "at_work": guest_lock.owners(locks),
        "left": sorted(migrate_left.all_of(migrate_journal.FOLDER)),
    }
