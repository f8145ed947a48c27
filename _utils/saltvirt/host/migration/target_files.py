"""The files of a guest on the target of a migration, and their creation there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from saltvirt import errors
from saltvirt.host.connection import libvirt
from saltvirt.host.migration import remote_storage
from saltvirt.host.migration.progress import Watch
from saltvirt.migration import storage
from saltvirt.migration.facts import BackingFile
from saltvirt.migration.journal import PendingFile

_MODE = "0600"


@dataclass
class MigrationTarget:
    """The other host while it is prepared.

    note: called with this and, before a file is made, its
    remote_storage.sign, by which it is told from a file that somebody else makes there; again when
    it is made. say: called with a line of progress. watch: a progress.Watch. made, folders: what
    was made so far.
    """

    peer: libvirt.virConnect
    note: Callable[..., None]
    report_step: Callable[[str], None]
    watch: Watch
    created: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def create_folder(self, path: str) -> None:
        """Makes the folder of a file, if there is none."""
        folder = os.path.dirname(path)
        if remote_storage.make_folder(self.peer, folder):
            self.folders.append(folder)
            self.note(self)

    def create_file(
        self,
        path: str,
        format: str,
        size_bytes: int,
        backing: BackingFile | None = None,
        mode: str = _MODE,
        source: str | None = None,
    ) -> None:
        """Makes a file that is not there yet.

        format, size_bytes, backing, mode: as for remote_storage.create.
        source: the local file whose bytes it gets.
        Raises AlreadyExists when it is there.
        """
        path = re.sub("/+", "/", path)  # so the target's minion takes it for a path of ours
        self.create_folder(path)
        send = None
        with remote_storage.require_pool(self.peer, os.path.dirname(path)) as pool:
            if remote_storage.volume(pool, path) is not None:
                raise errors.AlreadyExists(f"{path} has just appeared on the target")
            making = remote_storage.sign(pool, path)
            self.note(self, making)
            try:
                volume = self._make(pool, making, (format, size_bytes, backing), mode)
            except errors.AlreadyExists:
                self.note(self)  # somebody else's
                raise
            if source:
                send = remote_storage.begin_upload(volume, source)
        if send:  # for as long as it takes: others need the folder's pool
            self.watch.begin()
            send(self.watch)

    def _make(
        self,
        pool: libvirt.virStoragePool,
        making: PendingFile,
        volume_spec: tuple[str, int, BackingFile | None],
        mode: str,
    ) -> libvirt.virStorageVol:
        """The volume, which is ours: so it is noted before anything is written to it."""
        path, claimed = making.path, making.bytes is not None
        if claimed:
            volume = remote_storage.claim(pool, making, mode)
        else:
            volume = remote_storage.create(pool, path, *volume_spec, mode)
        self.created.append(path)
        self.note(self)
        if claimed:
            remote_storage.shape(volume, *volume_spec)
        return volume

    def retain(self, path: str) -> None:
        """The file stays (or is gone), whatever becomes of the migration."""
        if path in self.created:
            self.created.remove(path)
            self.note(self)

    def remove(self, path: str) -> None:
        """Removes a file that was made for a while."""
        remote_storage.delete(self.peer, path)
        self.retain(path)

    def copy(self, path: str, mode: str = _MODE, source: str | None = None) -> None:
        """Makes a file there with the bytes of ours. source: its path here, if it is another."""
        # its own format would be written into it: the bytes that come have it already
        self.create_file(path, "raw", 0, None, mode=mode, source=source or path)

    def size(self, path: str) -> int | None:
        """How long the file is there in bytes, or None."""
        with remote_storage.open_pool(self.peer, os.path.dirname(path)) as pool:
            volume = remote_storage.volume(pool, path) if pool is not None else None
            return None if volume is None else remote_storage.physical_bytes(volume)


def copy(target: MigrationTarget, plan: storage.DiskPlan) -> None:
    """Copies the disk of a guest that does not run, as it is."""
    if plan.type == "block":
        target.create_file(plan.target_path, plan.format, plan.size_bytes, None, source=plan.path)
    else:
        target.copy(plan.target_path, source=plan.path)
