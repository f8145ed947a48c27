"""Journal of disks that are being created for an existing guest.

A guest's definition does not contain disks that are still being created. A journal entry names them
first. If the process is killed, the next operation removes the disks that it certainly created and
that are unused, and reports the others.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.answers.guests import OrphanedDisks
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import metadata, purge
from saltvirt.host.migration import move_journal
from saltvirt.host.provision import existing_disk, undo_disks
from saltvirt.host.storage import answers, deletion, file_mark, files, sharing, usage
from saltvirt.images import clone
from saltvirt.schema import Message
from saltvirt.system import bounded_io, message_file, paths

if TYPE_CHECKING:
    from saltvirt.host.provision.disk_build import DiskBuild
    from saltvirt.host.storage.sharing import FileIdentity

log = logging.getLogger(__name__)

FOLDER = f"{paths.STATE}/making"
_UNPROVEN = "it cannot be proven that it was created for this guest: find out who uses it"


@dataclass(frozen=True)
class JournalDisk(Message):
    """A disk that is being created.

    mark: the mark of its file; see file_mark. key: libvirt's key of a volume that is not a file.
    """

    path: str | None
    pool: str | None
    volume: str | None
    mark: str
    key: str | None = None


@dataclass(frozen=True)
class DiskJournalEntry(Message):
    """A journal entry.

    operation: the operation. worker: its process; see metadata.worker.
    """

    operation: str
    worker: str
    disks: tuple[JournalDisk, ...]


@dataclass
class DiskLeftovers:
    """Disks of an interrupted operation.

    delete: real paths that it certainly created and that are unused. keep: path to the reason for
    keeping it. shared: identities of those in ``keep`` that only other hosts may use. extra_links:
    second names of files that a guest has under another name, whose removal loses no data. disks:
    pairs of a JournalDisk and its paths.
    """

    delete: list[str] = field(default_factory=list)
    keep: dict[str, str] = field(default_factory=dict)
    shared: dict[str, FileIdentity] = field(default_factory=dict)
    extra_links: list[str] = field(default_factory=list)
    disks: list[tuple[JournalDisk, list[str]]] = field(default_factory=list)

    def volumes(self) -> list[tuple[str, str]]:
        """Return (pool, volume) of each volume in ``delete``."""
        return [
            (disk.pool, disk.volume)
            for disk, paths in self.disks
            if disk.pool and disk.volume and paths and {*paths} <= {*self.delete}
        ]


class DiskJournal:
    """Writes the journal entry of a guest. The caller holds the guest's lock.

    operation: the operation. builds: its disks. Raises OperationFailed if the entry cannot be
    written.
    """

    def __init__(self, name: str, operation: str, builds: Iterable[DiskBuild]) -> None:
        self._path = _path(name)
        self._mark = file_mark.new()
        previous_entry = read(name)
        self._previous = previous_entry.disks if previous_entry else ()
        new_disks = filter(None, map(self._disk, builds))
        self._entry = DiskJournalEntry(operation, metadata.worker(), (*self._previous, *new_disks))
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            message_file.write(self._path, self._entry)
        except OSError as exc:
            raise errors.OperationFailed(
                f"cannot record the disks of {name}: {self._path}: {exc.strerror}"
            ) from exc

    def _disk(self, build: DiskBuild) -> JournalDisk | None:
        if build.path and existing_disk.is_block(build.path):
            return None  # block devices exist already
        return JournalDisk(build.path, build.pool, build.volume, self._mark)

    def mark(self, path: str) -> None:
        """Mark a new file before it gets its final name."""
        file_mark.put(path, self._mark)

    def volume(self, build: DiskBuild, volume_object: libvirt.virStorageVol) -> None:
        """Record the identity of a new virStorageVol."""
        if files.is_regular(volume_object.path()):
            self.mark(volume_object.path())
            return
        location, key = (build.pool, build.volume), volume_object.key()
        disks = (
            replace(disk, key=key) if (disk.pool, disk.volume) == location else disk
            for disk in self._entry.disks
        )
        self._entry = replace(self._entry, disks=tuple(disks))
        message_file.write(self._path, self._entry)

    def end(self, failed: Collection[str] = ()) -> None:
        """Remove the entry after the operation; keep it if something could not be undone.

        failed: what could not be undone.
        """
        if not failed:
            _store(self._path, self._entry, self._previous)


def _path(name: str) -> str:
    if "/" in name or "\0" in name:
        raise errors.InvalidInput(f"{name!r} is not a valid name of a guest")
    return os.path.join(FOLDER, f"{name}.json")


def _store(path: str, entry: DiskJournalEntry, disks: Collection[JournalDisk]) -> None:
    with contextlib.suppress(FileNotFoundError):
        if disks:
            message_file.write(path, replace(entry, disks=tuple(disks)))
        else:
            os.unlink(path)


def read(name: str) -> DiskJournalEntry | None:
    """Return the journal entry of a guest, or None. Raises OperationFailed if it cannot be read."""
    path = _path(name)
    try:
        return message_file.read(path, DiskJournalEntry)
    except errors.BadAnswer as exc:
        raise errors.OperationFailed(
            f"{path}, which records disks that were being created for {name}, cannot be read: {exc}"
        ) from exc


def unfinished(conn: libvirt.virConnect) -> dict[str, OrphanedDisks]:
    """Return the leftovers of dead operations, by guest name."""
    dead_disks = {}
    for name in move_journal.names(FOLDER):
        try:
            entry = read(name)
        except errors.OperationFailed as exc:
            dead_disks[name] = OrphanedDisks("an operation", (), {_path(name): str(exc)})
            continue
        if entry and not metadata.works(entry.worker):
            leftovers = _classify(conn, entry.disks)
            paths = sorted([*leftovers.delete, *leftovers.extra_links, *leftovers.shared])
            if paths or leftovers.keep:
                keep, shared = leftovers.keep, leftovers.shared
                unsure = {path: reason for path, reason in keep.items() if path not in shared}
                dead_disks[name] = OrphanedDisks(entry.operation, tuple(paths), unsure)
    return dead_disks


def find_leftovers(
    conn: libvirt.virConnect, name: str, unused: Collection[str] = ()
) -> DiskLeftovers:
    """Return the DiskLeftovers of a guest; change nothing.

    unused: paths on shared storage that all other hosts reported as unused.
    """
    entry = read(name)
    return _classify(conn, entry.disks, unused) if entry else DiskLeftovers()


def remove(conn: libvirt.virConnect, name: str, unused: Collection[str] = ()) -> DiskLeftovers:
    """Remove the leftovers that can be removed; return the DiskLeftovers.

    The caller holds the guest's lock, so no other operation is active.
    """
    entry = read(name)
    if entry is None:
        return DiskLeftovers()
    with translated(f"remove the disks that {entry.operation} has left of {name}"):
        with deletion.deletion_plan(conn, lambda: _classify(conn, entry.disks, unused)) as (
            leftovers,
            paths,
        ):
            for path in paths:
                purge.delete_storage(conn, path)
                log.info("%s, created for %s by %s, was deleted", path, name, entry.operation)
        for path in leftovers.extra_links:
            undo_disks.remove_file(path)
    remaining = [disk for disk, paths in leftovers.disks if {*paths} & {*leftovers.keep}]
    _store(_path(name), entry, remaining)
    return leftovers


def _classify(
    conn: libvirt.virConnect, notes: Iterable[JournalDisk], unused: Collection[str] = ()
) -> DiskLeftovers:
    candidates: dict[str, str | None] = {}
    unresponsive: dict[str, str] = {}
    disks: list[tuple[JournalDisk, list[str]]] = []
    for disk in notes:
        try:
            paths = [path for path in _disk_paths(conn, disk) if usage.is_there(conn, path)]
            candidates |= {path: _unproven(conn, disk, path) for path in paths}
        except errors.OperationFailed as exc:
            paths = [f"{disk.pool}/{disk.volume}"]
            unresponsive[paths[0]] = exc.text
        disks.append((disk, paths))
    used = usage.read(conn, sibling_paths=[path for path in candidates if path.startswith("/")])
    second = [path for path in candidates if _is_second_link(used, path)]
    # disks that a guest has meanwhile are not leftovers
    candidates = {
        p: reason for p, reason in candidates.items() if not used.guests(usage.keys_of(conn, p))
    }
    delete, keep, shared_files = usage.decide(conn, candidates, used, map(files.real, unused))
    return DiskLeftovers(delete, {**keep, **unresponsive}, shared_files, second, disks)


def _is_second_link(used: usage.Usage, path: str) -> bool:
    """Return whether a guest has the file under another name, and this name has no user."""
    status = _lstat(path)
    names = [path, os.path.normpath(path)]
    return (
        status is not None
        and stat.S_ISREG(status.st_mode)
        and status.st_nlink > 1
        and bool(used.guests([("file", status.st_dev, status.st_ino)]))
        and not used.keep_reason(names)
        and not sharing.sharing_reason(path)
    )


def _lstat(path: str) -> os.stat_result | None:
    """Return the status of a path without following links; None if it does not respond."""
    try:
        return os.lstat(path) if bounded_io.lexists(path) else None
    except OSError:
        return None


def _disk_paths(conn: libvirt.virConnect, disk: JournalDisk) -> list[str]:
    """Return the real paths of a disk and of its temporary file, or libvirt's path on a server.

    Raises OperationFailed if the pool is inactive.
    """
    path = disk.path
    if disk.pool:
        path = _in_pool(conn, disk.pool, disk.volume or "") or path
    if not path or not path.startswith("/"):
        return [path] if path else []
    return [files.real(path), files.real(clone.part(path))]


def _in_pool(conn: libvirt.virConnect, name: str, volume: str) -> str | None:
    """Return the path of a pool's volume, also if libvirt has not noticed its file yet; else
    None."""
    with contextlib.suppress(libvirt.libvirtError):
        pool = conn.storagePoolLookupByName(name)
        tree = ElementTree.fromstring(pool.XMLDesc(0))
        if tree.get("type") in usage.FILES:
            return os.path.join(tree.findtext("target/path", ""), volume)
        try:
            answers.pool(pool)
        except bounded_io.StorageTimeout as exc:
            raise errors.OperationFailed(exc.strerror) from exc
    files.require_pool(conn, name)
    return files.volume_path(conn, name, volume)


def _unproven(conn: libvirt.virConnect, disk: JournalDisk, path: str) -> str | None:
    """Return why it is not certain that the operation created this file; None if it did."""
    if disk.key:
        with contextlib.suppress(libvirt.libvirtError):
            if conn.storageVolLookupByPath(path).key() == disk.key:
                return None
        return _UNPROVEN
    status = _lstat(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        return _UNPROVEN
    if not status.st_size and os.path.basename(path).startswith("."):
        return None  # the operation had just created it
    return None if file_mark.matches(path, disk.mark) else _UNPROVEN
