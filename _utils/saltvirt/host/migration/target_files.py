"""The files of a guest on the target of a migration, and their creation."""

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
    """The target while it is prepared.

    note: is called with this object and, before a file is created, its remote_storage.sign, which
    distinguishes it from a file that another process creates there; and again when it is created.
    report_step: is called with a line of progress. watch: a progress.Watch. created, folders: what
    was created so far.
    """

    peer: libvirt.virConnect
    note: Callable[..., None]
    report_step: Callable[[str], None]
    watch: Watch
    created: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def create_folder(self, path: str) -> None:
        """Create the folder of a file, unless it exists."""
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
        """Create a file.

        format, size_bytes, backing, mode: as for remote_storage.create. source: the local file with
        its content. Raises AlreadyExists.
        """
        path = re.sub("/+", "/", path)  # so that the target's minion recognizes the path
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
                self.note(self)  # another process has created it
                raise
            if source:
                send = remote_storage.begin_upload(volume, source)
        if send:  # the pool is closed, because others need it meanwhile
            self.watch.begin()
            send(self.watch)

    def _make(
        self,
        pool: libvirt.virStoragePool,
        making: PendingFile,
        volume_spec: tuple[str, int, BackingFile | None],
        mode: str,
    ) -> libvirt.virStorageVol:
        """Return the volume. It is recorded as ours before anything is written to it."""
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
        """Exclude the file from the roll-back: it stays, or is gone already."""
        if path in self.created:
            self.created.remove(path)
            self.note(self)

    def remove(self, path: str) -> None:
        """Remove a temporary file."""
        remote_storage.delete(self.peer, path)
        self.retain(path)

    def copy(self, path: str, mode: str = _MODE, source: str | None = None) -> None:
        """Create a file with the content of ours. source: its local path, if that differs."""
        # raw, because the content already has its own format
        self.create_file(path, "raw", 0, None, mode=mode, source=source or path)

    def size(self, path: str) -> int | None:
        """Return the length of the file in bytes, or None."""
        with remote_storage.open_pool(self.peer, os.path.dirname(path)) as pool:
            volume = remote_storage.volume(pool, path) if pool is not None else None
            return None if volume is None else remote_storage.physical_bytes(volume)


def copy(target: MigrationTarget, plan: storage.DiskPlan) -> None:
    """Copies the disk of a guest that does not run, as it is."""
    if plan.type == "block":
        target.create_file(plan.target_path, plan.format, plan.size_bytes, None, source=plan.path)
    else:
        target.copy(plan.target_path, source=plan.path)
