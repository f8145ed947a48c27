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

from saltvirt import errors, places
from saltvirt.answers.guests import DeadDisks
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import metadata, purge
from saltvirt.host.migration import move_journal
from saltvirt.host.provision import existing_disk, undo_disks
from saltvirt.host.storage import (
    answers,
    bounded,
    deletion,
    file_mark,
    files,
    shared,
    usage,
)
from saltvirt.images import clone
from saltvirt.wire import Fact

if TYPE_CHECKING:
    from saltvirt.host.provision.disks import Work
    from saltvirt.host.storage.shared import FileIdentity

log = logging.getLogger(__name__)

FOLDER = f"{places.STATE}/making"
_NOT_SURE = "it cannot be proven that it was made for this guest: look whose it is"


@dataclass(frozen=True)
class DiskNote(Fact):
    """A disk that is being made. mark: by which a file is known as this one; key: libvirt's, of a
    volume that is no file."""

    path: str | None
    pool: str | None
    volume: str | None
    mark: str
    key: str | None = None


@dataclass(frozen=True)
class Entry(Fact):
    """What is in a note. what: the operation; worker: its process, see metadata.worker."""

    what: str
    worker: str
    disks: tuple[DiskNote, ...]


@dataclass
class Left:
    """What an operation that died has left. delete: real paths that are proven to be made by it and
    used by nobody. keep: path to why it stays. shared: the identities of what is in ``keep`` only
    because other hosts may have it. second: second names of files that a guest has by another name:
    to take one away loses nothing. disks: pairs of what the note says of a disk and its paths."""

    delete: list[str] = field(default_factory=list)
    keep: dict[str, str] = field(default_factory=dict)
    shared: dict[str, FileIdentity] = field(default_factory=dict)
    second: list[str] = field(default_factory=list)
    disks: list[tuple[DiskNote, list[str]]] = field(default_factory=list)

    def volumes(self) -> list[tuple[str, str]]:
        """(pool, volume) of those in ``delete``."""
        return [
            (disk.pool, disk.volume)
            for disk, paths in self.disks
            if disk.pool and disk.volume and paths and {*paths} <= {*self.delete}
        ]


class Note:
    """What is being made for one guest, by who holds the guest's lock.

    what: the operation. works: disks.Work of what is to be made. Raises OperationFailed when it
    cannot be written.
    """

    def __init__(self, name: str, what: str, works: Iterable[Work]) -> None:
        self._path = _path(name)
        self._mark = file_mark.new()
        earlier = read(name)
        self._kept = earlier.disks if earlier else ()
        new = filter(None, map(self._disk, works))
        self._entry = Entry(what, metadata.worker(), (*self._kept, *new))
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            move_journal.put(self._path, self._entry)
        except OSError as exc:
            raise errors.OperationFailed(
                f"cannot write down which disks are made for {name}: {self._path}: {exc.strerror}"
            ) from exc

    def _disk(self, work: Work) -> DiskNote | None:
        if work.path and existing_disk.is_block(work.path):
            return None  # it is there already
        return DiskNote(work.path, work.pool, work.volume, self._mark)

    def mark(self, path: str) -> None:
        """Makes a file known as the one that was made, before it has its name."""
        file_mark.put(path, self._mark)

    def volume(self, work: Work, made: libvirt.virStorageVol) -> None:
        """The same of the virStorageVol that was made for a Work."""
        if files.is_regular(made.path()):
            self.mark(made.path())
            return
        place, key = (work.pool, work.volume), made.key()
        disks = (
            replace(disk, key=key) if (disk.pool, disk.volume) == place else disk
            for disk in self._entry.disks
        )
        self._entry = replace(self._entry, disks=tuple(disks))
        move_journal.put(self._path, self._entry)

    def end(self, failed: Collection[str] = ()) -> None:
        """The disks are the guest's, or gone. failed: what could not be undone; the note stays."""
        if not failed:
            _keep(self._path, self._entry, self._kept)


def _path(name: str) -> str:
    if "/" in name or "\0" in name:
        raise errors.InvalidInput(f"{name!r} is no guest's name")
    return os.path.join(FOLDER, f"{name}.json")


def _keep(path: str, entry: Entry, disks: Collection[DiskNote]) -> None:
    with contextlib.suppress(FileNotFoundError):
        if disks:
            move_journal.put(path, replace(entry, disks=tuple(disks)))
        else:
            os.unlink(path)


def read(name: str) -> Entry | None:
    """The Entry on a guest's disks, or None. Raises OperationFailed for one that cannot be read."""
    path = _path(name)
    try:
        return move_journal.read(path, Entry)
    except errors.BadAnswer as exc:
        raise errors.OperationFailed(
            f"{path}, which names disks that were being made for {name}, cannot be read: {exc}"
        ) from exc


def unfinished(conn: libvirt.virConnect) -> dict[str, DeadDisks]:
    """What operations that died have left, by the name of the guest."""
    found = {}
    for name in move_journal.names(FOLDER):
        try:
            entry = read(name)
        except errors.OperationFailed as exc:
            found[name] = DeadDisks("an operation", (), {_path(name): str(exc)})
            continue
        if entry and not metadata.works(entry.worker):
            left = _left(conn, entry.disks)
            paths = sorted([*left.delete, *left.second, *left.shared])
            if paths or left.keep:
                unsure = {path: why for path, why in left.keep.items() if path not in left.shared}
                found[name] = DeadDisks(entry.what, tuple(paths), unsure)
    return found


def look(conn: libvirt.virConnect, name: str, unused: Collection[str] = ()) -> Left:
    """The Left of a guest; changes nothing. unused: paths on shared storage of which all other
    hosts have said that nobody there uses them."""
    entry = read(name)
    return _left(conn, entry.disks, unused) if entry else Left()


def remove(conn: libvirt.virConnect, name: str, unused: Collection[str] = ()) -> Left:
    """Takes away what can go; the Left, what stayed in ``keep``. Called by who holds the guest's
    lock, so that nobody is at work on it."""
    entry = read(name)
    if entry is None:
        return Left()
    with translated(f"remove the disks that {entry.what} has left of {name}"):
        with deletion.planned(conn, lambda: _left(conn, entry.disks, unused)) as (left, paths):
            for path in paths:
                purge.delete_storage(conn, path)
                log.info("%s, made for %s by %s, was deleted", path, name, entry.what)
        for path in left.second:
            undo_disks.remove_file(path)
    _keep(_path(name), entry, [disk for disk, paths in left.disks if {*paths} & {*left.keep}])
    return left


def _left(
    conn: libvirt.virConnect, notes: Iterable[DiskNote], unused: Collection[str] = ()
) -> Left:
    wanted: dict[str, str | None] = {}
    silent: dict[str, str] = {}
    disks: list[tuple[DiskNote, list[str]]] = []
    for disk in notes:
        try:
            paths = [path for path in _places(conn, disk) if usage.is_there(conn, path)]
            wanted |= {path: _unproven(conn, disk, path) for path in paths}
        except errors.OperationFailed as exc:
            paths = [f"{disk.pool}/{disk.volume}"]
            silent[paths[0]] = exc.text
        disks.append((disk, paths))
    used = usage.read(conn, beside=[path for path in wanted if path.startswith("/")])
    second = [path for path in wanted if _is_second(used, path)]
    # what a guest has by now is its own
    wanted = {p: why for p, why in wanted.items() if not used.guests(usage.keys_of(conn, p))}
    delete, keep, shared = usage.decide(conn, wanted, used, map(files.real, unused))
    return Left(delete, {**keep, **silent}, shared, second, disks)


def _is_second(used: usage.Usage, path: str) -> bool:
    """Whether a guest has the file by another name, and nobody can mean it by this one."""
    seen = _seen(path)
    names = [path, os.path.normpath(path)]
    return (
        seen is not None
        and stat.S_ISREG(seen.st_mode)
        and seen.st_nlink > 1
        and bool(used.guests([("file", seen.st_dev, seen.st_ino)]))
        and not used.why(names)
        and not shared.why(path)
    )


def _seen(path: str) -> os.stat_result | None:
    """What is at a path, not what a link leads to; None where nobody answers."""
    try:
        return os.lstat(path) if bounded.lexists(path) else None
    except OSError:
        return None


def _places(conn: libvirt.virConnect, disk: DiskNote) -> list[str]:
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
        except bounded.Silent as exc:
            raise errors.OperationFailed(exc.strerror) from exc
    files.require_pool(conn, name)
    return files.volume_path(conn, name, volume)


def _unproven(conn: libvirt.virConnect, disk: DiskNote, path: str) -> str | None:
    """Why it is not certain that this is what was made; None when it is."""
    if disk.key:
        with contextlib.suppress(libvirt.libvirtError):
            if conn.storageVolLookupByPath(path).key() == disk.key:
                return None
        return _NOT_SURE
    seen = _seen(path)
    if seen is None or not stat.S_ISREG(seen.st_mode):
        return _NOT_SURE
    if not seen.st_size and os.path.basename(path).startswith("."):
        return None  # its making had just begun
    return None if file_mark.has(path, disk.mark) else _NOT_SURE
