"""What the target must have before the guest comes: empty disks, and what thin ones stand on."""

import os

from saltvirt import errors
from saltvirt.host import migrate_store
from saltvirt.migration import storage

_MODE = "0600"
_BASE_MODE = "0444"


def created(plans):
    """The paths that preparing will make on the target, in that order."""
    found = []
    for plan in storage.copied(plans):
        found += [base["path"] for base in plan.bases] + [plan.path]
    return list(dict.fromkeys(found))


def disks(peer, plans, active, undo, say):
    """Makes the volumes of all plans on the target.

    active: QEMU will fill them; else they are the empty files that ours are copied into.
    undo: a Revert, which learns how to remove each. say: called with a line of progress.
    """
    for folder in folders(plans):
        if migrate_store.make_folder(peer, folder):
            undo.push(f"remove {folder} on the target", migrate_store.remove_folder, peer, folder)
    for plan in storage.copied(plans):
        for base in plan.bases:
            _base(peer, base, undo, say)
        _disk(peer, plan, active, undo)


def folders(plans):
    """The folders of all that is to be made."""
    return list(dict.fromkeys(os.path.dirname(path) for path in created(plans)))


def _disk(peer, plan, active, undo):
    with migrate_store.opened(peer, os.path.dirname(plan.path)) as pool:
        if migrate_store.volume(pool, plan.path) is not None:
            raise errors.MigrationFailed(f"{plan.path} has just appeared on the target")
        undo.push(f"delete {plan.path} on the target", migrate_store.delete, peer, plan.path)
        if active or plan.type == "block":
            wanted = (plan.format, plan.size_bytes, plan.backing)
        else:
            wanted = ("raw", 0, None)
        migrate_store.create(pool, plan.path, *wanted, mode=_MODE)


def _base(peer, base, undo, say):
    """Brings a backing file, byte for byte, unless it is there by now."""
    path = base["path"]
    with migrate_store.opened(peer, os.path.dirname(path)) as pool:
        if migrate_store.volume(pool, path) is not None:
            return
        say(f"copying the image {path}")
        undo.push(f"delete {path} on the target", migrate_store.delete, peer, path)
        # its own format would be written into it: the bytes that come have it already
        found = migrate_store.create(pool, path, "raw", 0, mode=_BASE_MODE)
        migrate_store.upload(found, path)
