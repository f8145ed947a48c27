"""What the target must have before the guest comes: empty disks, and what thin ones stand on."""

import os
from dataclasses import dataclass, field

from saltvirt import errors
from saltvirt.host import migrate_store
from saltvirt.migration import storage

_MODE = "0600"
_BASE_MODE = "0444"


@dataclass
class Target:
    """The other host while it is prepared.

    undo: a Revert, which learns how to remove what is made. note: called with the list of
    files made, before each is made. say: called with a line of progress.
    """

    peer: object
    undo: object
    note: object
    say: object
    made: list = field(default_factory=list)

    def folder(self, path):
        """Makes the folder of a file, if there is none."""
        folder = os.path.dirname(path)
        if migrate_store.make_folder(self.peer, folder):
            self.undo.push(f"remove {folder}", migrate_store.remove_folder, self.peer, folder)

    def file(self, path, *wanted, mode=_MODE, source=None):
        """Makes a file that is not there yet.

        wanted: format, size in bytes and what it stands on, as for migrate_store.create.
        source: the local file whose bytes it gets. Raises MigrationFailed when it is there.
        """
        self.folder(path)
        with migrate_store.opened(self.peer, os.path.dirname(path)) as pool:
            if migrate_store.volume(pool, path) is not None:
                raise errors.MigrationFailed(f"{path} has just appeared on the target")
            self.note([*self.made, path])
            self.made.append(path)
            try:
                found = migrate_store.create(pool, path, *wanted, mode=mode)
            except errors.AlreadyExists:
                self.made.remove(path)  # somebody else's
                self.note(self.made)
                raise
            self.undo.push(f"delete {path}", migrate_store.delete, self.peer, path)
            if source:
                migrate_store.upload(found, source)

    def copy(self, path, mode=_MODE):
        """Makes a file there with the bytes of ours."""
        # its own format would be written into it: the bytes that come have it already
        self.file(path, "raw", 0, None, mode=mode, source=path)

    def has(self, path):
        with migrate_store.opened(self.peer, os.path.dirname(path)) as pool:
            return pool is not None and migrate_store.volume(pool, path) is not None


def disks(target, plans, active):
    """Makes the volumes of all plans on the target.

    active: QEMU will fill them; else they are made when they are copied, but for block
    devices, which must be there.
    """
    for plan in storage.copied(plans):
        for base in plan.bases:
            if not target.has(base["path"]):
                target.say(f"copying the image {base['path']}")
                target.copy(base["path"], _BASE_MODE)
        if active:
            target.file(plan.path, plan.format, plan.size_bytes, plan.backing)


def copy(target, plan):
    """Copies the disk of a guest that does not run, as it is."""
    if plan.type == "block":
        target.file(plan.path, plan.format, plan.size_bytes, None, source=plan.path)
    else:
        target.copy(plan.path)
