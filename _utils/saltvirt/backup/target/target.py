"""The backups in a target's folder.

::

    UUID/IDENT/record.json    the record; record.sha256: its digest, as sha256sum writes it
               domain.xml     the guest's definition
               vda.qcow2      a disk: full, or an overlay on ../PARENT/vda.qcow2
               vda.pieces     its checksum blocks
               verified.json  result of the last verification
               stands.json    guests that run from the backup
    UUID/.lock                held while a backup of this guest is created or removed
    UUID/.new-IDENT           a backup being created; UUID/.gone-IDENT: being removed. The next
                              process removes those of a process that died
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from saltvirt import errors
from saltvirt.backup.model import backup_ids, checksum_blocks, record, verification
from saltvirt.backup.model.catalog import Catalog, StoredBackup
from saltvirt.backup.model.checksum_blocks import ChecksumBlock
from saltvirt.backup.model.record import BackupDiskRecord, BackupRecord
from saltvirt.backup.model.verification import Verification
from saltvirt.backup.target import pins
from saltvirt.backup.target.safe_folder import Busy, SafeFolder, check_absolute
from saltvirt.images import header
from saltvirt.units import short_repr

LOCK = ".lock"
NEW, REMOVING = ".new-", ".gone-"
_MAX_MARK_BYTES = 1024**2
_BLOCK = 1024**2
# while a record or a verification result is written; a backup holds the lock until it is complete
WAIT_S = 10


class BackupTarget:
    """A folder of backups. Raises InvalidInput if the folder is not suitable."""

    def __init__(self, folder: str) -> None:
        self.folder = SafeFolder(folder)

    def guests(self) -> list[str]:
        """Return the UUIDs of guests that have or had backups here."""
        return [name for name in self.folder.names() if record.is_uuid(name)]

    def catalog(self, uuid: str) -> Catalog:
        """Return the catalog of a guest, which may be empty."""
        names = self.folder.names(_check_uuid(uuid))
        backups = [self._load_backup(uuid, item) for item in names if backup_ids.is_backup_id(item)]
        return Catalog(item for item in backups if item)

    def _load_backup(self, uuid: str, backup_id: str) -> StoredBackup | None:
        try:
            lengths = self.folder.lengths(uuid, backup_id)
            data = self.folder.read(uuid, backup_id, record.FILE, max_bytes=record.MAX_BYTES)
            seal_data = self.folder.read(uuid, backup_id, record.SEAL, max_bytes=_BLOCK)
            backup_record = record.parse(data, f"{record.FILE} of {backup_id}", seal_data)
            if (backup_record.backup_id, backup_record.uuid) != (backup_id, uuid):
                raise errors.BadAnswer(f"{record.FILE} of {backup_id} belongs to another backup")
        except errors.NotFound as exc:
            if not self.folder.exists(uuid, backup_id):
                return None  # removed meanwhile
            return StoredBackup(backup_id, record_error=exc.text)
        except errors.VirtError as exc:
            return StoredBackup(backup_id, record_error=exc.text)
        file_names = {name for disk in backup_record.parts for name in (disk.file, disk.checksums)}
        file_names.add(record.DEFINITION)
        file_lengths = {name: length for name, length in lengths.items() if name in file_names}
        result, result_error = self._load_result(backup_record)
        return StoredBackup(
            backup_id,
            backup_record,
            lengths=file_lengths,
            verification=result,
            result_error=result_error,
        )

    def _load_result(self, backup_record: BackupRecord) -> tuple[Verification | None, str | None]:
        """Return (result of the last verification, why it cannot be read)."""
        label = f"{verification.FILE} of {backup_record.backup_id}"
        try:
            data = self.folder.read(
                backup_record.uuid,
                backup_record.backup_id,
                verification.FILE,
                max_bytes=_MAX_MARK_BYTES,
            )
            return verification.parse(data, label), None
        except errors.NotFound:
            return None, None
        except errors.VirtError as exc:  # it may have reported broken disks
            broken = {disk.target: exc.text for disk in backup_record.parts}
            return Verification(backup_record.taken_at, broken_disks=broken), exc.text

    def definition(self, backup_record: BackupRecord) -> str:
        """Return the guest's definition. Raises BadAnswer if it does not match the record."""
        max_bytes = record.MAX_DEFINITION_BYTES
        data = self.folder.read(
            backup_record.uuid, backup_record.backup_id, record.DEFINITION, max_bytes=max_bytes
        )
        if hashlib.sha256(data).hexdigest() != backup_record.definition_sha256:
            raise errors.BadAnswer(f"{record.DEFINITION} of {backup_record.backup_id} has changed")
        return data.decode("utf-8")

    def disk_path(self, backup_record: BackupRecord, target: str) -> str:
        """Return the path of a disk's qcow2."""
        return self.folder.path(
            backup_record.uuid, backup_record.backup_id, record.disk_file(target)
        )

    def layer_paths(self, backup_record: BackupRecord, disk: BackupDiskRecord) -> list[str]:
        """Return the paths of a disk's qcow2 and its backing files, after checking that each
        matches its record and that all have the same encryption key.

        Raises BadAnswer, ImageError, NotFound.
        """
        path = self.disk_path(backup_record, disk.target)
        problem = image_mismatch(path, disk)
        if problem:
            raise errors.BadAnswer(f"{disk.file} {problem}")
        paths = [path]
        for layer_id, below in self.catalog(backup_record.uuid).chain(
            backup_record.backup_id, disk.target
        )[1:]:
            paths.append(self.folder.path(backup_record.uuid, layer_id, below.file))
            lower_problem = image_mismatch(paths[-1], below) or key_mismatch(below, disk)
            if lower_problem:
                raise errors.BadAnswer(f"{below.file} of {layer_id} {lower_problem}")
        return paths

    def read_checksums(
        self, backup_record: BackupRecord, disk: BackupDiskRecord
    ) -> Iterator[ChecksumBlock]:
        """Yield the checksum blocks of a disk. Raises BadAnswer, possibly after some blocks."""
        full = disk.parent is None
        label = f"{disk.checksums} of {backup_record.backup_id}"
        digest = hashlib.sha256()
        reading = self.folder.open_file(backup_record.uuid, backup_record.backup_id, disk.checksums)
        with reading as fd, os.fdopen(os.dup(fd), "rb") as file:
            lines = _hash_lines(file.readline, digest.update)
            yield from checksum_blocks.read(lines, disk.size_bytes, full, label)
        if digest.hexdigest() != disk.checksums_sha256:
            raise errors.BadAnswer(f"{label} has changed")

    @contextlib.contextmanager
    def lock(self, uuid: str, wait_s: float = WAIT_S, purpose: str = "") -> Iterator[None]:
        """Hold the lock of the guest's backups for the block. purpose: for messages. Raises
        Busy."""
        self.folder.make(_check_uuid(uuid))
        with self.folder.lock(uuid, LOCK, wait_s=wait_s, purpose=purpose):
            yield

    @contextlib.contextmanager
    def open_backup(self, uuid: str, backup_id: str) -> Iterator[BackupRecord]:
        """Yield the record of a backup and protect the backup, and all on which it depends, from
        removal during the block.

        Raises NotFound if it was removed, BadAnswer if its record cannot be read.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(
                self.folder.file_lock(_check_uuid(uuid), _check_id(backup_id), record.FILE)
            )
            backup = self.catalog(uuid).backups[backup_id]
            if backup.record is None:
                raise errors.BadAnswer(f"{backup.record_error}")
            yield backup.record

    @contextlib.contextmanager
    def create(self, uuid: str, backup_id: str, wait_s: float = WAIT_S) -> Iterator[NewBackup]:
        """Yield a new backup. It exists after the block only if it was finished.

        backup_id: from ``backup_ids.following``. Raises InvalidInput if another backup was made
        meanwhile.
        """
        with self.lock(uuid, wait_s, f"the backup {backup_id}"):
            self.sweep(uuid)
            existing = [name for name in self.folder.names(uuid) if backup_ids.is_backup_id(name)]
            if existing and backup_ids.number(max(existing)) >= backup_ids.number(
                _check_id(backup_id)
            ):
                raise errors.InvalidInput(
                    f"another backup of this guest, {max(existing)}, was made meanwhile: repeat "
                    "the command if you need one more"
                )
            new = NewBackup(self, uuid, backup_id)
            self.folder.make(uuid, new.name)
            try:
                yield new
            finally:  # a finished backup was renamed
                self.folder.remove(uuid, new.name)

    def sweep(self, uuid: str) -> None:
        """Remove what interrupted processes left of a guest. The caller holds the lock."""
        for name in self.folder.names(uuid):
            if name.startswith((NEW, REMOVING)):
                self.folder.remove(uuid, name)

    def remove(self, uuid: str, backup_id: str) -> bool:
        """Remove a backup; return False if it is being read or pinned. The caller holds the lock,
        and has removed all backups that depend on this one.

        Raises BadAnswer for a link instead of a folder.
        """
        self.folder.names(uuid)
        try:
            with self._exclusive(uuid, _check_id(backup_id)):
                if pins.load(self.folder, uuid, backup_id):
                    return False
                self.folder.rename(uuid, backup_id, to=f"{REMOVING}{backup_id}")
        except Busy:
            return False
        self.folder.remove(uuid, f"{REMOVING}{backup_id}")
        return True

    @contextlib.contextmanager
    def _exclusive(self, uuid: str, backup_id: str) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            # a backup without a record cannot be in use
            with contextlib.suppress(errors.NotFound, errors.BadAnswer):
                stack.enter_context(
                    self.folder.file_lock(uuid, backup_id, record.FILE, exclusive=True)
                )
            yield

    def is_used(self, uuid: str, backup_id: str) -> bool:
        """Whether a process reads the backup. On a read-only file system nothing is removed, so it
        does not matter."""
        if self.folder.is_read_only:
            return False
        try:
            with self._exclusive(uuid, _check_id(backup_id)):
                return False
        except Busy:
            return True

    def save_verification(self, uuid: str, backup_id: str, result: Verification) -> None:
        """Store the result of a verification. The caller keeps the backup open."""
        self.folder.write(
            uuid, _check_id(backup_id), verification.FILE, data=record.as_json(result)
        )


def open_target(folder: str, mounted: bool) -> BackupTarget:
    """Return the target in a folder. mounted: require a mount point. Raises InvalidInput."""
    if mounted and not os.path.ismount(check_absolute(folder)):
        raise errors.InvalidInput(f"{folder} is not mounted: mount the file system of the target")
    return BackupTarget(folder)


@dataclass
class NewBackup:
    """A backup being created. It does not count as a backup before ``finish``."""

    target: BackupTarget
    uuid: str
    backup_id: str

    @property
    def name(self) -> str:
        """Name of its temporary folder, in which ``../PARENT/vda.qcow2`` is valid too."""
        return f"{NEW}{self.backup_id}"

    @property
    def path(self) -> str:
        """Path of its temporary folder, for a program that writes into it."""
        return self.target.folder.path(self.uuid, self.name)

    def disk_path(self, target: str) -> str:
        """Return the path for the qcow2 of a disk."""
        return self.target.folder.path(self.uuid, self.name, record.disk_file(target))

    @contextlib.contextmanager
    def checksum_writer(self, target: str) -> Iterator[ChecksumFile]:
        """Yield a writer for the checksum blocks of a disk."""
        path = self.target.folder.path(self.uuid, self.name, record.checksum_file(target))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            yield ChecksumFile(file.write)

    def finish(self, draft: BackupRecord, definition: str) -> BackupRecord:
        """Complete the record and publish the backup.

        draft: the record without backup name, UUID, digest of the definition and file sizes, which
        are added here. Raises BadAnswer; in this case there is no backup.
        """
        folder, xml = self.target.folder, definition.encode("utf-8")
        if len(xml) > record.MAX_DEFINITION_BYTES:
            raise errors.BadAnswer("the definition of the guest is too long")
        lengths = folder.lengths(self.uuid, self.name)
        missing = [
            name
            for disk in draft.parts
            for name in (disk.file, disk.checksums)
            if name not in lengths
        ]
        if missing:
            raise errors.BadAnswer(f"{missing[0]} was not written")
        disks = tuple(replace(disk, stored_bytes=lengths[disk.file]) for disk in draft.disks)
        state = draft.state and replace(draft.state, stored_bytes=lengths[draft.state.file])
        backup_record = replace(
            draft,
            backup_id=self.backup_id,
            uuid=self.uuid,
            disks=disks,
            state=state,
            definition_sha256=hashlib.sha256(xml).hexdigest(),
        )
        data = record.serialize(backup_record)
        catalog = self.target.catalog(self.uuid)
        for disk in backup_record.parts:
            self._check_disk(disk, catalog)
        folder.write(self.uuid, self.name, record.DEFINITION, data=xml)
        folder.write(self.uuid, self.name, record.SEAL, data=record.seal(data))
        folder.write(self.uuid, self.name, record.FILE, data=data)
        folder.sync(self.uuid, self.name)
        folder.rename(self.uuid, self.name, to=self.backup_id)
        return backup_record

    def _check_disk(self, disk: BackupDiskRecord, catalog: Catalog) -> None:
        """Raise BadAnswer if the file of a disk does not match its record."""
        problem = image_mismatch(self.disk_path(disk.target), disk)
        problem = problem or (disk.parent and _parent_mismatch(disk, disk.parent, catalog))
        if problem:
            raise errors.BadAnswer(f"{disk.file} of {self.backup_id} {problem}")


def _parent_mismatch(disk: BackupDiskRecord, parent: str, catalog: Catalog) -> str | None:
    """Return why a disk cannot depend on this parent."""
    reason = catalog.disk_problem(parent, disk.target)
    if reason:
        return f"would depend on {parent}: {reason}"
    [(_, below), *_] = catalog.chain(parent, disk.target)
    mismatch = key_mismatch(below, disk)
    return f"would depend on {parent}, which {mismatch}" if mismatch else None


class ChecksumFile:
    """Writes checksum blocks to a file and computes its digest."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._digest = hashlib.sha256()
        self._end = 0

    def add(self, block: ChecksumBlock) -> None:
        """Append a block."""
        if block.offset_bytes < self._end:
            raise ValueError(f"the block at {block.offset_bytes} comes after {self._end}")
        self._end = block.end_bytes
        self._digest.update(block.line)
        self._write(block.line)

    @property
    def sha256(self) -> str:
        """Digest of the file, for the record."""
        return self._digest.hexdigest()


def image_mismatch(path: str, disk: BackupDiskRecord) -> str | None:
    """Return how a file differs from the record of its disk; None if it matches. Tools may open it
    only in this case.

    Raises ImageError, NotFound.
    """
    image = header.read(path, record.QCOW2)
    backing = (image.backing, image.backing_format) if image.backing else None
    if image.size_bytes != disk.size_bytes:
        return f"has {image.size_bytes} bytes instead of {disk.size_bytes}"
    if backing != disk.backing:
        return f"has the backing file {short_repr(backing)} instead of {disk.backing}"
    if image.data_file or image.snapshots or image.corrupt:
        return "has a data file, a snapshot, or is marked as corrupt"
    if (image.encrypted, image.luks) != (bool(disk.key), bool(disk.key)):
        return (
            "is not encrypted by LUKS"
            if disk.key
            else ("is encrypted, but not according to its record")
        )
    return None


def key_mismatch(below: BackupDiskRecord, disk: BackupDiskRecord) -> str | None:
    """Return why a disk cannot have a backing file with another encryption key."""
    if below.key == disk.key:
        return None
    return (
        f"is encrypted with {below.key or 'no key'}, the disk that depends on it with "
        f"{disk.key or 'none'}"
    )


def _hash_lines(
    readline: Callable[[int], bytes], update: Callable[[bytes], object]
) -> Iterator[bytes]:
    while line := readline(checksum_blocks.MAX_LINE_BYTES):
        update(line)
        yield line


def _check_uuid(uuid: str) -> str:
    if not record.is_uuid(uuid):
        raise errors.InvalidInput(f"{uuid!r} is not a UUID of a guest")
    return uuid


def _check_id(backup_id: str) -> str:
    if not backup_ids.is_backup_id(backup_id):
        raise errors.InvalidInput(f"{backup_id!r} is not a valid backup name")
    return backup_id
