"""What the target must have before the guest comes: empty disks, and what thin ones stand on."""

import os
from dataclasses import dataclass, field

from saltvirt import errors
from saltvirt.host import migrate_images, migrate_store
from saltvirt.migration import storage

_MODE = "0600"


@dataclass
class Target:
    """The other host while it is prepared.

    undo: a Revert, which learns how to remove what is made. note: called with the list of
    files made, before each is made. say: called with a line of progress. watch: a
    migrate_watch.Watch.
    """

    peer: object
    undo: object
    note: object
    say: object
    watch: object
    made: list = field(default_factory=list)

    def folder(self, path):
        """Makes the folder of a file, if there is none."""
        folder = os.path.dirname(path)
        if migrate_store.make_folder(self.peer, folder):
            self.undo.push(f"remove {folder}", migrate_store.remove_folder, self.peer, folder)

    def file(self, path, *wanted, mode=_MODE, source=None):
        """Makes a file that is not there yet.

        wanted: format, size in bytes and what it stands on, as for migrate_store.create.
        source: the local file whose bytes it gets.
        Raises AlreadyExists when it is there.
        """
        self.folder(path)
        send = None
        with migrate_store.opened(self.peer, os.path.dirname(path)) as pool:
            if migrate_store.volume(pool, path) is not None:
                raise errors.AlreadyExists(f"{path} has just appeared on the target")
            self.note([*self.made, path])
            self.made.append(path)
            try:
                found = migrate_store.create(pool, path, *wanted, mode=mode)
            except errors.AlreadyExists:
                self.made.remove(path)  # somebody else's
                self.note(self.made)
                raise
            self.undo.push(f"delete {path}", self._take_back, path)
            if source:
                send = migrate_store.begin_upload(found, source)
        if send:  # for as long as it takes: others need the folder's pool
            self.watch.begin()
            send(self.watch)

    def _take_back(self, path):
        if path in self.made:
            migrate_store.delete(self.peer, path)

    def keep(self, path):
        """The file stays (or is gone), whatever becomes of the migration."""
        if path in self.made:
            self.made.remove(path)
            self.note(self.made)

    def remove(self, path):
        """Removes a file that was made for a while."""
        migrate_store.delete(self.peer, path)
        self.keep(path)

    def copy(self, path, mode=_MODE, source=None):
        """Makes a file there with the bytes of ours. source: its path here, if it is another."""
        # its own format would be written into it: the bytes that come have it already
        self.file(path, "raw", 0, None, mode=mode, source=source or path)

    def size(self, path):
        """How long the file is there in bytes, or None."""
        with migrate_store.opened(self.peer, os.path.dirname(path)) as pool:
            found = migrate_store.volume(pool, path) if pool is not None else None
            return None if found is None else migrate_store.physical_bytes(found)


def disks(target, plans, active):
    """Makes the volumes of all plans on the target.

    active: QEMU will fill them; else they are made when they are copied, but for block
    devices, which must be there.
    """
    for plan in plans:
        for base in plan.bases:
            migrate_images.bring(target, base)
        if active:
            own(target, plan)
        if active and plan in storage.copied(plans):
            target.file(plan.there, plan.format, plan.size_bytes, plan.backing)


def own(target, plan):
    """Copies the guest's own files on which a disk stands."""
    for base in plan.along:
        target.say(f"copying {base['path']}, on which disk {plan.target} stands")
        target.copy(base["path"])


def variables(target, path):
    """The file of the firmware's variables, which libvirt makes on the target and QEMU fills:
    whoever cleans up must know of it."""
    target.note([*target.made, path])
    target.made.append(path)
    target.undo.push(f"delete {path}", migrate_store.delete, target.peer, path)


def copy(target, plan):
    """Copies the disk of a guest that does not run, as it is."""
    if plan.type == "block":
        target.file(plan.there, plan.format, plan.size_bytes, None, source=plan.path)
    else:
        target.copy(plan.there, source=plan.path)
