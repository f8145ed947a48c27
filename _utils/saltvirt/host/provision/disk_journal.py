"""Disks that are being made for a guest that is there, written down before they are made.

A guest's definition names its disks, but for those that are just being made for it. Who is
killed before they are in the definition leaves a note here; whoever comes next takes away what
is proven to be made by it and used by nobody, and names the rest.
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
from saltvirt.host import paths
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import metadata, purge
from saltvirt.host.migration import move_journal
from saltvirt.host.provision import existing_disk, undo_disks
from saltvirt.host.storage import answers, bounded_io, deletion, file_mark, files, sharing, usage
from saltvirt.images import clone
from saltvirt.schema import Message

if TYPE_CHECKING:
    from saltvirt.host.provision.disk_build import DiskBuild
    from saltvirt.host.storage.sharing import FileIdentity

log = logging.getLogger(__name__)

FOLDER = f"{paths.STATE}/making"
_UNPROVEN = "it cannot be proven that it was made for this guest: look whose it is"


@dataclass(frozen=True)
class JournalDisk(Message):
    """A disk that is being made. mark: by which a file is known as this one; key: libvirt's, of a
    volume that is no file."""

    path: str | None
    pool: str | None
    volume: str | None
    mark: str
    key: str | None = None


@dataclass(frozen=True)
class DiskJournalEntry(Message):
    """What is in a note. what: the operation; worker: its process, see metadata.worker."""

    what: str
    worker: str
    disks: tuple[JournalDisk, ...]


@dataclass
class DiskLeftovers:
    """What an operation that died has left. delete: real paths that are proven to be made by it and
    used by nobody. keep: path to why it stays. shared: the identities of what is in ``keep`` only
    because other hosts may have it. second: second names of files that a guest has by another name:
    to take one away loses nothing. disks: pairs of what the note says of a disk and its paths."""

    delete: list[str] = field(default_factory=list)
    keep: dict[str, str] = field(default_factory=dict)
    shared: dict[str, FileIdentity] = field(default_factory=dict)
    extra_links: list[str] = field(default_factory=list)
    disks: list[tuple[JournalDisk, list[str]]] = field(default_factory=list)

    def volumes(self) -> list[tuple[str, str]]:
        """(pool, volume) of those in ``delete``."""
        return [
            (disk.pool, disk.volume)
            for disk, paths in self.disks
            if disk.pool and disk.volume and paths and {*paths} <= {*self.delete}
        ]


class DiskJournal:
    """What is being made for one guest, by who holds the guest's lock.

    what: the operation. works: disks.Work of what is to be made. Raises OperationFailed when it
    cannot be written.
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
            move_journal.store(self._path, self._entry)
        except OSError as exc:
            raise errors.OperationFailed(
                f"cannot write down which disks are made for {name}: {self._path}: {exc.strerror}"
            ) from exc

    def _disk(self, build: DiskBuild) -> JournalDisk | None:
        if build.path and existing_disk.is_block(build.path):
            return None  # it is there already
        return JournalDisk(build.path, build.pool, build.volume, self._mark)

    def mark(self, path: str) -> None:
        """Makes a file known as the one that was made, before it has its name."""
        file_mark.put(path, self._mark)

    def volume(self, build: DiskBuild, volume_object: libvirt.virStorageVol) -> None:
        """The same of the virStorageVol that was made for a Work."""
        if files.is_regular(volume_object.path()):
            self.mark(volume_object.path())
            return
        location, key = (build.pool, build.volume), volume_object.key()
        disks = (
            replace(disk, key=key) if (disk.pool, disk.volume) == location else disk
            for disk in self._entry.disks
        )
        self._entry = replace(self._entry, disks=tuple(disks))
        move_journal.store(self._path, self._entry)

    def end(self, failed: Collection[str] = ()) -> None:
        """The disks are the guest's, or gone. failed: what could not be undone; the note stays."""
        if not failed:
            _store(self._path, self._entry, self._previous)


def _path(name: str) -> str:
    if "/" in name or "\0" in name:
        raise errors.InvalidInput(f"{name!r} is no guest's name")
    return os.path.join(FOLDER, f"{name}.json")


def _store(path: str, entry: DiskJournalEntry, disks: Collection[JournalDisk]) -> None:
    with contextlib.suppress(FileNotFoundError):
        if disks:
            move_journal.store(path, replace(entry, disks=tuple(disks)))
        else:
            os.unlink(path)


def read(name: str) -> DiskJournalEntry | None:
    """The Entry on a guest's disks, or None. Raises OperationFailed for one that cannot be read."""
    path = _path(name)
    try:
        return move_journal.read(path, DiskJournalEntry)
    except errors.BadAnswer as exc:
        raise errors.OperationFailed(
            f"{path}, which names disks that were being made for {name}, cannot be read: {exc}"
        ) from exc


def unfinished(conn: libvirt.virConnect) -> dict[str, OrphanedDisks]:
    """What operations that died have left, by the name of the guest."""
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
                unsure = {
                    path: reason
                    for path, reason in leftovers.keep.items()
                    if path not in leftovers.shared
                }
                dead_disks[name] = OrphanedDisks(entry.what, tuple(paths), unsure)
    return dead_disks


def find_leftovers(
    conn: libvirt.virConnect, name: str, unused: Collection[str] = ()
) -> DiskLeftovers:
    """The Left of a guest; changes nothing. unused: paths on shared storage of which all other
    hosts have said that nobody there uses them."""
    entry = read(name)
    return _classify(conn, entry.disks, unused) if entry else DiskLeftovers()


def remove(conn: libvirt.virConnect, name: str, unused: Collection[str] = ()) -> DiskLeftovers:
    """Takes away what can go; the Left, what stayed in ``keep``. Called by who holds the guest's
    lock, so that nobody is at work on it."""
    entry = read(name)
    if entry is None:
        return DiskLeftovers()
    with translated(f"remove the disks that {entry.what} has left of {name}"):
        with deletion.deletion_plan(conn, lambda: _classify(conn, entry.disks, unused)) as (
            leftovers,
            paths,
        ):
            for path in paths:
                purge.delete_storage(conn, path)
                log.info("%s, made for %s by %s, was deleted", path, name, entry.what)
        for path in leftovers.extra_links:
            undo_disks.remove_file(path)
    _store(
        _path(name),
        entry,
        [disk for disk, paths in leftovers.disks if {*paths} & {*leftovers.keep}],
    )
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
    # what a guest has by now is its own
    candidates = {
        p: reason for p, reason in candidates.items() if not used.guests(usage.keys_of(conn, p))
    }
    delete, keep, shared_files = usage.decide(conn, candidates, used, map(files.real, unused))
    return DiskLeftovers(delete, {**keep, **unresponsive}, shared_files, second, disks)


def _is_second_link(used: usage.Usage, path: str) -> bool:
    """Whether a guest has the file by another name, and nobody can mean it by this one."""
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
    """What is at a path, not what a link leads to; None where nobody answers."""
    try:
        return os.lstat(path) if bounded_io.lexists(path) else None
    except OSError:
        return None


def _disk_paths(conn: libvirt.virConnect, disk: JournalDisk) -> list[str]:
    """The real paths of a disk and of the file that gets its name when it is whole; what a server
    has by libvirt's path. Raises OperationFailed for a pool that is not started."""
    path = disk.path
    if disk.pool:
        path = _in_pool(conn, disk.pool, disk.volume or "") or path
    if not path or not path.startswith("/"):
        return [path] if path else []
    return [files.real(path), files.real(clone.part(path))]


def _in_pool(conn: libvirt.virConnect, name: str, volume: str) -> str | None:
    """The path of a pool's volume, also of a file that libvirt has not seen yet; None without."""
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
    """Why it is not certain that this is what was made; None when it is."""
    if disk.key:
        with contextlib.suppress(libvirt.libvirtError):
            if conn.storageVolLookupByPath(path).key() == disk.key:
                return None
        return _UNPROVEN
    status = _lstat(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        return _UNPROVEN
    if not status.st_size and os.path.basename(path).startswith("."):
        return None  # its making had just begun
    return None if file_mark.matches(path, disk.mark) else _UNPROVEN
