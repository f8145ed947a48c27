"""The backups in a target's folder.

::

    UUID/IDENT/record.json    what it is; record.sha256 its digest, as sha256sum writes it
               domain.xml     the guest's definition
               vda.qcow2      a disk, whole or an overlay on ../PARENT/vda.qcow2
               vda.pieces     digests of what was read of it
               verified.json  what was found when it was last read back
               stands.json    which guests run from it
    UUID/.lock                who makes or removes a backup of this guest
    UUID/.new-IDENT           being made, UUID/.gone-IDENT being removed; of a process that died:
                              the next one removes it
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from saltvirt import errors
from saltvirt.backuphost import stands
from saltvirt.backuphost.folder import Busy, Folder, absolute
from saltvirt.backups import ident as idents
from saltvirt.backups import marks, pieces, record
from saltvirt.backups.marks import Verified
from saltvirt.backups.pieces import Piece
from saltvirt.backups.record import BackupDisk, Record
from saltvirt.backups.stock import Backup, Stock
from saltvirt.images import header
from saltvirt.units import shown

LOCK = ".lock"
NEW, GONE = ".new-", ".gone-"
_MOST_MARK_BYTES = 1024**2
_BLOCK = 1024**2
# while a record is made or a mark is put; a backup itself holds the lock for as long as it takes
WAIT_S = 10


class Target:
    """A folder of backups. Raises InvalidInput where it cannot be one."""

    def __init__(self, folder: str) -> None:
        self.folder = Folder(folder)

    def guests(self) -> list[str]:
        """The UUIDs of guests that have, or had, a backup here."""
        return [one for one in self.folder.names() if record.is_uuid(one)]

    def stock(self, uuid: str) -> Stock:
        """What is here of a guest, good or not; nothing where there is none."""
        names = self.folder.names(_uuid(uuid))
        found = [self._backup(uuid, one) for one in names if idents.is_ident(one)]
        return Stock(one for one in found if one)

    def _backup(self, uuid: str, ident: str) -> Backup | None:
        try:
            lengths = self.folder.lengths(uuid, ident)
            data = self.folder.read(uuid, ident, record.FILE, most=record.MOST_BYTES)
            sealed = self.folder.read(uuid, ident, record.SEAL, most=_BLOCK)
            found = record.parse(data, f"{record.FILE} of {ident}", sealed)
            if (found.ident, found.uuid) != (ident, uuid):
                raise errors.BadAnswer(f"{record.FILE} of {ident} is of another backup")
        except errors.NotFound as exc:
            if not self.folder.is_there(uuid, ident):
                return None  # removed meanwhile
            return Backup(ident, trouble=exc.text)
        except errors.VirtError as exc:
            return Backup(ident, trouble=exc.text)
        mine = {name for disk in found.parts for name in (disk.file, disk.pieces)}
        mine.add(record.DEFINITION)
        kept = {name: length for name, length in lengths.items() if name in mine}
        verified, unsure = self._verified(found)
        return Backup(ident, found, lengths=kept, verified=verified, unsure=unsure)

    def _verified(self, of: Record) -> tuple[Verified | None, str | None]:
        """(what was found when it was last read back, why that cannot be read)."""
        whose = f"{marks.FILE} of {of.ident}"
        try:
            data = self.folder.read(of.uuid, of.ident, marks.FILE, most=_MOST_MARK_BYTES)
            return marks.parse(data, whose), None
        except errors.NotFound:
            return None, None
        except errors.VirtError as exc:  # it may have said that a disk is broken
            broken = {disk.target: exc.text for disk in of.parts}
            return Verified(of.when, broken=broken), exc.text

    def definition(self, of: Record) -> str:
        """The XML of a backup. Raises BadAnswer where it is not what the record was made with."""
        most = record.MOST_DEFINITION_BYTES
        data = self.folder.read(of.uuid, of.ident, record.DEFINITION, most=most)
        if hashlib.sha256(data).hexdigest() != of.definition_sha256:
            raise errors.BadAnswer(f"{record.DEFINITION} of {of.ident} has changed")
        return data.decode("utf-8")

    def disk_path(self, of: Record, target: str) -> str:
        """The path of a disk's qcow2."""
        return self.folder.path(of.uuid, of.ident, record.disk_file(target))

    def fitting(self, of: Record, disk: BackupDisk) -> list[str]:
        """The path of a disk's qcow2, for a tool, and of those that it stands on: each is what its
        record says, and all are encrypted by the same key.

        Raises BadAnswer, ImageError, NotFound.
        """
        path = self.disk_path(of, disk.target)
        wrong = misfit(path, disk)
        if wrong:
            raise errors.BadAnswer(f"{disk.file} {wrong}")
        paths = [path]
        for at, below in self.stock(of.uuid).chain(of.ident, disk.target)[1:]:
            paths.append(self.folder.path(of.uuid, at, below.file))
            lower = misfit(paths[-1], below) or otherwise(below, disk)
            if lower:
                raise errors.BadAnswer(f"{below.file} of {at} {lower}")
        return paths

    def pieces(self, of: Record, disk: BackupDisk) -> Iterator[Piece]:
        """The digests of a disk's pieces. Raises BadAnswer, in the middle, too."""
        whole = disk.parent is None
        whose = f"{disk.pieces} of {of.ident}"
        digest = hashlib.sha256()
        reading = self.folder.reading(of.uuid, of.ident, disk.pieces)
        with reading as fd, os.fdopen(os.dup(fd), "rb") as file:
            lines = _hashed(file.readline, digest.update)
            yield from pieces.read(lines, disk.size_bytes, whole, whose)
        if digest.hexdigest() != disk.pieces_sha256:
            raise errors.BadAnswer(f"{whose} has changed")

    @contextlib.contextmanager
    def locked(self, uuid: str, wait_s: float = WAIT_S, what: str = "") -> Iterator[None]:
        """Nobody else makes or removes a backup of the guest for the block. what: what is done.
        Raises Busy."""
        self.folder.make(_uuid(uuid))
        with self.folder.locked(uuid, LOCK, wait_s=wait_s, what=what):
            yield

    @contextlib.contextmanager
    def using(self, uuid: str, ident: str) -> Iterator[Record]:
        """A backup that is read for the block: nothing of it, nor of what it stands on, is removed.

        Raises NotFound where it is gone, BadAnswer where its record cannot be read.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.folder.held(_uuid(uuid), _ident(ident), record.FILE))
            found = self.stock(uuid).backups[ident]
            if found.record is None:
                raise errors.BadAnswer(f"{found.trouble}")
            yield found.record

    @contextlib.contextmanager
    def making(self, uuid: str, ident: str, wait_s: float = WAIT_S) -> Iterator[NewBackup]:
        """A backup that is made in the block: there when it was finished, else nothing of it.

        ident: of ``ident.following``; when meanwhile another was made, InvalidInput.
        """
        with self.locked(uuid, wait_s, f"the backup {ident}"):
            self.sweep(uuid)
            there = [one for one in self.folder.names(uuid) if idents.is_ident(one)]
            if there and idents.number(max(there)) >= idents.number(_ident(ident)):
                raise errors.InvalidInput(
                    f"the backup {max(there)} of this guest was made meanwhile: call the verb "
                    "again if you need one more"
                )
            new = NewBackup(self, uuid, ident)
            self.folder.make(uuid, new.name)
            try:
                yield new
            finally:  # one that was finished has another name
                self.folder.remove(uuid, new.name)

    def sweep(self, uuid: str) -> None:
        """Removes what a process that died left of a guest. Hold its lock."""
        for one in self.folder.names(uuid):
            if one.startswith((NEW, GONE)):
                self.folder.remove(uuid, one)

    def remove(self, uuid: str, ident: str) -> bool:
        """Takes a backup away; False when somebody reads it, or a guest stands on it. Hold the
        lock of the guest that was backed up.

        What stands on it has to be gone before. Raises BadAnswer for a link in place of a folder.
        """
        self.folder.names(uuid)
        try:
            with self._alone(uuid, _ident(ident)):
                if stands.of(self, uuid, ident):
                    return False
                self.folder.rename(uuid, ident, to=f"{GONE}{ident}")
        except Busy:
            return False
        self.folder.remove(uuid, f"{GONE}{ident}")
        return True

    @contextlib.contextmanager
    def _alone(self, uuid: str, ident: str) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            # without a record nobody can be reading it
            with contextlib.suppress(errors.NotFound, errors.BadAnswer):
                stack.enter_context(self.folder.held(uuid, ident, record.FILE, alone=True))
            yield

    def is_used(self, uuid: str, ident: str) -> bool:
        """Does somebody read it? Where nobody can write that is not asked: nothing is removed."""
        if self.folder.is_read_only:
            return False
        try:
            with self._alone(uuid, _ident(ident)):
                return False
        except Busy:
            return True

    def mark(self, uuid: str, ident: str, found: Verified) -> None:
        """Puts down what was found of a backup, while it is used."""
        self.folder.write(uuid, _ident(ident), marks.FILE, data=record.as_json(found))


def opened(folder: str, mounted: bool) -> Target:
    """The target in a folder. mounted: it has to be a mount point. Raises InvalidInput."""
    if mounted and not os.path.ismount(absolute(folder)):
        raise errors.InvalidInput(f"{folder} is not mounted: no backup is read or written below it")
    return Target(folder)


@dataclass
class NewBackup:
    """A backup that is being made. What is in its folder is no backup before ``finish``."""

    target: Target
    uuid: str
    ident: str

    @property
    def name(self) -> str:
        """Its folder until then. From there, too, ``../PARENT/vda.qcow2`` is the parent's."""
        return f"{NEW}{self.ident}"

    @property
    def path(self) -> str:
        """The path of its folder until then, for a program that writes into it."""
        return self.target.folder.path(self.uuid, self.name)

    def disk_path(self, target: str) -> str:
        """Where the qcow2 of a disk is to be written."""
        return self.target.folder.path(self.uuid, self.name, record.disk_file(target))

    @contextlib.contextmanager
    def pieces(self, target: str) -> Iterator[PiecesFile]:
        """Takes the digests of a disk, in order, for the block."""
        path = self.target.folder.path(self.uuid, self.name, record.pieces_file(target))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            yield PiecesFile(file.write)

    def finish(self, told: Record, definition: str) -> Record:
        """The record, with the backup in its place.

        told: all but what is known here: its name, its guest's UUID, the digest of its definition,
        and how long its disks are. Raises BadAnswer, and then there is no backup.
        """
        folder, xml = self.target.folder, definition.encode("utf-8")
        if len(xml) > record.MOST_DEFINITION_BYTES:
            raise errors.BadAnswer("the definition is too long")
        lengths = folder.lengths(self.uuid, self.name)
        missing = [
            name for disk in told.parts for name in (disk.file, disk.pieces) if name not in lengths
        ]
        if missing:
            raise errors.BadAnswer(f"{missing[0]} was not written")
        disks = tuple(replace(disk, stored_bytes=lengths[disk.file]) for disk in told.disks)
        state = told.state and replace(told.state, stored_bytes=lengths[told.state.file])
        made = replace(
            told,
            ident=self.ident,
            uuid=self.uuid,
            disks=disks,
            state=state,
            definition_sha256=hashlib.sha256(xml).hexdigest(),
        )
        data = record.written(made)
        stock = self.target.stock(self.uuid)
        for disk in made.parts:
            self._fits(disk, stock)
        folder.write(self.uuid, self.name, record.DEFINITION, data=xml)
        folder.write(self.uuid, self.name, record.SEAL, data=record.seal(data))
        folder.write(self.uuid, self.name, record.FILE, data=data)
        folder.sync(self.uuid, self.name)
        folder.rename(self.uuid, self.name, to=self.ident)
        return made

    def _fits(self, disk: BackupDisk, stock: Stock) -> None:
        """Raises BadAnswer where a disk's file is not what the record will say of it."""
        wrong = misfit(self.disk_path(disk.target), disk)
        wrong = wrong or (disk.parent and _misfit_below(disk, disk.parent, stock))
        if wrong:
            raise errors.BadAnswer(f"{disk.file} of {self.ident} {wrong}")


def _misfit_below(disk: BackupDisk, parent: str, stock: Stock) -> str | None:
    """Why a disk cannot stand on what it is to."""
    why = stock.wrong_disk(parent, disk.target)
    if why:
        return f"would stand on {parent}: {why}"
    [(_, below), *_] = stock.chain(parent, disk.target)
    other = otherwise(below, disk)
    return f"would stand on {parent}, which {other}" if other else None


class PiecesFile:
    """Digests on their way to a file. sha256 is of the file, when all were added."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._digest = hashlib.sha256()
        self._end = 0

    def add(self, piece: Piece) -> None:
        """Puts a piece behind the last one."""
        if piece.offset_bytes < self._end:
            raise ValueError(f"the piece at {piece.offset_bytes} comes after {self._end}")
        self._end = piece.end_bytes
        self._digest.update(piece.line)
        self._write(piece.line)

    @property
    def sha256(self) -> str:
        """What the record has of it."""
        return self._digest.hexdigest()


def misfit(path: str, disk: BackupDisk) -> str | None:
    """What a disk's file has that its record does not tell of, or None: no tool may open it then.

    Raises ImageError, NotFound.
    """
    found = header.read(path, record.QCOW2)
    backing = (found.backing, found.backing_format) if found.backing else None
    if found.size_bytes != disk.size_bytes:
        return f"is of {found.size_bytes} bytes, not {disk.size_bytes}"
    if backing != disk.backing:
        return f"stands on {shown(backing)}, not on {disk.backing}"
    if found.data_file or found.snapshots or found.corrupt:
        return "has a data file, a snapshot, or is marked as corrupt"
    if (found.encrypted, found.luks) != (bool(disk.key), bool(disk.key)):
        return "is not encrypted by LUKS" if disk.key else "is encrypted, which its record lacks"
    return None


def otherwise(below: BackupDisk, disk: BackupDisk) -> str | None:
    """Why a disk cannot be read through one that is encrypted by another key, or by none."""
    if below.key == disk.key:
        return None
    return f"is encrypted by {below.key or 'no key'}, what stands on it by {disk.key or 'none'}"


def _hashed(readline: Callable[[int], bytes], update: Callable[[bytes], object]) -> Iterator[bytes]:
    while line := readline(pieces.LONGEST_LINE):
        update(line)
        yield line


def _uuid(uuid: str) -> str:
    if not record.is_uuid(uuid):
        raise errors.InvalidInput(f"{uuid!r} is no UUID of a guest")
    return uuid


def _ident(ident: str) -> str:
    if not idents.is_ident(ident):
        raise errors.InvalidInput(f"{ident!r} is no name of a backup")
    return ident
