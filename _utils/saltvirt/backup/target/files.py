"""List and extract files of a backup through libguestfs: its appliance mounts the guest's file
systems, this machine does not.

The content is controlled by the guest and may be malicious. Names in a guest are never used as
names on this machine, limits apply to the received data and not to reported sizes, and writes
during the recovery of a file system go to a temporary folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from saltvirt import errors, units
from saltvirt.backup.model import backup_ids, files, record
from saltvirt.backup.model.catalog import Catalog
from saltvirt.backup.model.files import ExtractedFile, FileEntry, FileListing
from saltvirt.backup.model.record import BackupRecord
from saltvirt.backup.target import daemon, layers, upkeep
from saltvirt.backup.target.safe_folder import SafeFolder
from saltvirt.backup.target.target import BackupTarget
from saltvirt.seed import guestfish
from saltvirt.seed.guestfish import Added, Session
from saltvirt.system import paths, private_folder
from saltvirt.units import short_repr

OUTPUT_DIR = f"{paths.STATE}/backup-files"
_SCRATCH = f"{paths.STATE}/backup-looks"
_INSTALL_HINT = "install libguestfs-tools (Debian, Ubuntu: also guestfs-tools)"
# not mountable
_NO_FILES = {"", "swap", "unknown", "crypto_LUKS", "LVM2_member", "linux_raid_member"}
_MAX_SYSTEMS, _MAX_MOUNTS = 64, 32
# names that need no quotes in a list
_PLAIN = re.compile(rb"[A-Za-z0-9._+@%:,=-]{1,255}")
_BATCH_SIZE = 100
_MAX_SAME_NAME = 1000
RESERVED_BYTES = 256 * 1024**2
_CHECK_BYTES = 64 * 1024**2

# called regularly with the number of processed bytes
ProgressCallback = Callable[[int], object]


@dataclass(frozen=True)
class FileQuery:
    """name: of the guest, or its UUID. backup: as for ``backup_ids.find``. path: in the guest.
    filesystem: device to use instead of the file systems that the guest's system mounts."""

    name: str
    backup: str
    path: str
    filesystem: str | None = None


class _GuestFiles:
    """Access to the guest's files while the appliance runs."""

    def __init__(self, session: Session, systems: dict[str, str], missing: dict[str, str]) -> None:
        self.session, self.systems, self.missing = session, systems, missing

    def attributes(self, path: str, follow: bool) -> dict[str, int]:
        """Return the attributes of a file. follow: follow a symbolic link, inside the guest."""
        try:
            output = self.session.text("statns" if follow else "lstatns", path)
        except errors.SeedFailed as exc:
            raise errors.NotFound(
                f"{short_repr(path)} not found in the backup: {exc.text}"
            ) from exc
        return files.parse_attributes(output)

    def list_folder(self, path: str) -> tuple[list[FileEntry], int]:
        """Return (entries of a folder or the file itself, number of omitted entries)."""
        if files.kind(self.attributes(path, True)) != files.FOLDER:
            return [self._entry(os.path.dirname(path), os.fsencode(os.path.basename(path)))], 0
        names = sorted(name for name in self.session.run("ls0", path, "-").split(b"\0") if name)
        listed = names[: files.MAX_ENTRIES]
        attributes = self._batch_attributes(
            path, [name for name in listed if _PLAIN.fullmatch(name)]
        )
        entries = [self._entry(path, name, attributes.get(name)) for name in listed]
        return entries, len(names) - len(listed)

    def _entry(
        self, folder: str, raw: bytes, attributes: dict[str, int] | None = None
    ) -> FileEntry:
        path = os.path.join(folder, os.fsdecode(raw))
        numbers = attributes or self.attributes(path, False)
        target = None
        if files.kind(numbers) == files.LINK:
            target = self.session.run("readlink", path).removesuffix(b"\n")
        return files.describe(raw, numbers, target)

    def _batch_attributes(self, folder: str, names: list[bytes]) -> dict[bytes, dict[str, int]]:
        """Return the attributes of several files in one call; omit batches with missing files."""
        by_name: dict[bytes, dict[str, int]] = {}
        for first in range(0, len(names), _BATCH_SIZE):
            batch = names[first : first + _BATCH_SIZE]
            output = self.session.text("lstatnslist", folder, b" ".join(batch).decode("ascii"))
            parsed = [files.parse_attributes(part) for part in output.split("}") if part.strip()]
            if len(parsed) == len(batch):
                by_name.update(zip(batch, parsed, strict=True))
        return by_name


def list_files(target: BackupTarget, query: FileQuery, report: ProgressCallback) -> FileListing:
    """List a folder of a guest, or one file.

    report: called regularly. Raises NotFound, InvalidInput, BadAnswer for a backup that is not
    good, Unsupported without libguestfs, OperationFailed if libguestfs fails.
    """
    with _open_guest_files(target, query, report) as (backup_record, guest_files):
        entries, omitted = guest_files.list_folder(query.path)
        return FileListing(
            backup_record.backup_id,
            backup_record.guest,
            tuple(entries),
            omitted,
            guest_files.systems,
            guest_files.missing,
        )


def get(
    target: BackupTarget,
    query: FileQuery,
    dest: str | None,
    max_bytes: int,
    test: bool,
    report: ProgressCallback,
) -> ExtractedFile:
    """Extract a file, or a folder as a tar file, completely or not at all.

    dest: path of the new file, which must not exist; None: choose one. max_bytes: limit for the
    size. test: only check. Raises what list_files raises, and AlreadyExists.
    """
    destination = None if dest is None else _Destination.parse(dest)
    with _open_guest_files(target, query, report) as (backup_record, guest_files):
        numbers = guest_files.attributes(query.path, True)
        kind = files.kind(numbers)
        if kind not in (files.FILE, files.FOLDER):
            raise errors.InvalidInput(
                f"{short_repr(query.path)} is a {kind}, only files and folders can be extracted"
            )
        length = numbers.get("st_size", 0) if kind == files.FILE else 0
        if length > max_bytes:
            raise _too_large(query.path, max_bytes)
        if test:
            return ExtractedFile(backup_record.backup_id, backup_record.guest, kind, length)
        destination = destination or _Destination.default(backup_record, query.path, kind)
        with destination.writing(query.path, max_bytes, report) as out:
            if kind == files.FILE:
                guest_files.session.save(out.write, "download", query.path, "-")
            else:
                guest_files.session.save(out.write, "tar-out", query.path, "-", "numericowner:true")
        return ExtractedFile(
            backup_record.backup_id, backup_record.guest, kind, out.size_bytes, out.path
        )


@contextlib.contextmanager
def _open_guest_files(
    target: BackupTarget, query: FileQuery, report: ProgressCallback
) -> Iterator[tuple[BackupRecord, _GuestFiles]]:
    if not guestfish.available():
        raise errors.Unsupported(f"this host cannot read files of a backup: {_INSTALL_HINT}")
    uuid, name, catalog = _select_backup(target, query)
    broken = catalog.broken_disks(name)
    with target.open_backup(uuid, name) as full_record:
        backup_record = replace(
            full_record,
            disks=tuple(part for part in full_record.disks if part.target not in broken),
        )
        report(0)
        try:
            with (
                private_folder.temporary(_SCRATCH, "look-") as folder,
                _appliance_disks(target, backup_record, folder) as disks,
                guestfish.launch(disks, scratch=folder) as session,
            ):
                report(0)
                guest_files = _mount(session, query.filesystem)
                # files on these disks are not visible
                guest_files.missing.update(
                    {f"disk {disk}": reason for disk, reason in broken.items()}
                )
                yield backup_record, guest_files
        except errors.SeedFailed as exc:
            raise errors.OperationFailed(f"cannot read the files of {name}: {exc.text}") from exc


@contextlib.contextmanager
def _appliance_disks(
    target: BackupTarget, backup_record: BackupRecord, folder: str
) -> Iterator[list[Added]]:
    """Yield the disks for the appliance. libguestfs cannot open encrypted qcow2 files, so the
    storage daemon exports them decrypted in the temporary folder."""
    layer_sets = [layers.load(target, backup_record, item) for item in backup_record.disks]
    if not any(item.key for item in layer_sets):
        yield [Added(item.paths[0], record.QCOW2, True) for item in layer_sets]
        return
    socket_path = os.path.join(folder, "nbd")
    names = [item.target for item in backup_record.disks]
    shown = [item.exported(name) for item, name in zip(layer_sets, names, strict=True)]
    server = daemon.begin(shown, socket_path)
    try:
        yield [Added(name, record.RAW, True, socket_path) for name in names]
    finally:
        server.end()


def _select_backup(target: BackupTarget, query: FileQuery) -> tuple[str, str, Catalog]:
    """Return (UUID, name of the backup, catalog of the guest). Raises BadAnswer if no disk of the
    backup is good."""
    catalogs = {
        item: catalog for item, catalog in upkeep.select(target, query.name).items() if catalog.last
    }
    if not catalogs:
        raise errors.NotFound(f"no backup of {query.name} found in {target.folder.root}")
    if len(catalogs) > 1:
        candidates = ", ".join(sorted(catalogs))
        raise errors.InvalidInput(
            f"several guests had the name {query.name}: use one of the UUIDs {candidates}"
        )
    [(uuid, catalog)] = catalogs.items()
    backup_id = backup_ids.find(catalog.backups, query.backup, query.name)
    backup_record = catalog.backups[backup_id].record
    if backup_record is None or {*catalog.broken_disks(backup_id)} >= {
        item.target for item in backup_record.disks
    }:
        raise errors.BadAnswer(f"backup {backup_id} is not good: {catalog.problem(backup_id)}")
    return uuid, backup_id, catalog


def _mount(session: Session, requested: str | None) -> _GuestFiles:
    lines = session.text("list-filesystems").splitlines()[:_MAX_SYSTEMS]
    raw = dict(line.partition(": ")[::2] for line in lines)
    systems = {
        files.display_name(os.fsencode(device)): files.display_name(raw[device].encode())
        for device in raw
    }
    usable = [device for device, kind in raw.items() if kind.strip() not in _NO_FILES]
    if requested is not None:
        if requested not in raw:
            raise errors.NotFound(
                f"no file system {short_repr(requested)} found; available: "
                f"{', '.join(systems) or 'none'}"
            )
        session.run("mount-ro", requested, "/")
        return _GuestFiles(session, systems, {})
    if len(usable) == 1:
        session.run("mount-ro", usable[0], "/")
        return _GuestFiles(session, systems, {})
    roots = session.text("inspect-os").split() if usable else []
    if len(roots) != 1:
        problem = f"{len(roots)} systems found" if roots else "no system found"
        available = ", ".join(f"{device} ({kind})" for device, kind in systems.items()) or "none"
        raise errors.InvalidInput(
            f"{problem} on the disks of the backup: choose a file system with filesystem=; "
            f"available: {available}"
        )
    return _GuestFiles(session, systems, _mount_system(session, roots[0]))


def _mount_system(session: Session, root: str) -> dict[str, str]:
    """Mount the file systems of the guest's system; return those that failed, with the reason."""
    mounts, missing = {}, {}
    for line in session.text("inspect-get-mountpoints", root).splitlines()[:_MAX_MOUNTS]:
        point, _, device = line.partition(": ")
        mounts[point.strip()] = device.strip()
    for point in sorted(mounts, key=len):
        try:
            session.run("mount-ro", mounts[point], point)
        except errors.SeedFailed as exc:
            if point == "/":
                raise
            missing[files.display_name(os.fsencode(point))] = exc.text
    return missing


def _too_large(path: str, max_bytes: int) -> errors.InvalidInput:
    limit = units.human_bytes(max_bytes)
    return errors.InvalidInput(f"{short_repr(path)} is larger than {limit}: increase max_size")


def _refuse_shared(folder: str) -> None:
    """Raise InvalidInput if another user could replace the folder."""
    above = folder
    while above != "/":
        above = os.path.dirname(above)
        status = os.lstat(above)
        open_to_all = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()) or open_to_all:
            raise errors.InvalidInput(f"{folder} is not safe: other users can write to {above}")


class _Destination:
    """Where to write an extracted file: a folder that only root can write to, and names to try."""

    def __init__(self, folder: str, names: list[str]) -> None:
        self.folder, self.names = folder, names

    @classmethod
    def parse(cls, dest: object) -> _Destination:
        """Check a path given by the user. Raises InvalidInput, AlreadyExists."""
        if not isinstance(dest, str) or not dest.startswith("/") or "\0" in dest:
            raise errors.InvalidInput(f"dest must be an absolute path, not {short_repr(dest)}")
        folder, name = os.path.split(dest)
        if name in ("", ".", ".."):
            raise errors.InvalidInput(
                f"dest must be the path of a new file, not {short_repr(dest)}"
            )
        if os.path.realpath(folder) != folder:
            raise errors.InvalidInput(
                f"dest contains a symbolic link: use {short_repr(os.path.realpath(folder))} as "
                "its folder"
            )
        SafeFolder(folder)
        _refuse_shared(folder)
        if os.path.lexists(dest):
            raise errors.AlreadyExists(f"{dest} already exists")
        return cls(folder, [name])

    @classmethod
    def default(cls, backup_record: BackupRecord, path: str, kind: str) -> _Destination:
        """Choose names below OUTPUT_DIR."""
        last = re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(path))[:100] or "root"
        end = ".tar" if kind == files.FOLDER else ""
        stem = f"{backup_record.guest[:100]}-{backup_ids.number(backup_record.backup_id)}-{last}"
        alternatives = [f"{stem}.{number}{end}" for number in range(2, _MAX_SAME_NAME)]
        return cls(private_folder.ensure(OUTPUT_DIR), [f"{stem}{end}", *alternatives])

    @contextlib.contextmanager
    def writing(self, path: str, max_bytes: int, report: ProgressCallback) -> Iterator[_OutputFile]:
        """Yield a new file, readable for root only. It gets its name only if the block succeeds, so
        that an interruption leaves no file."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._os_errors():
            folder = os.open(self.folder, flags)
        try:
            with self._os_errors():
                fd = os.open(".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600, dir_fd=folder)
            try:
                with self._os_errors():
                    out = _OutputFile(fd, path, max_bytes, report)
                    yield out
                    os.fsync(fd)
                    out.path = os.path.join(self.folder, self._name(fd, folder))
                    os.fsync(folder)
            finally:
                os.close(fd)
        finally:
            os.close(folder)

    def _name(self, fd: int, folder: int) -> str:
        for name in self.names:
            with contextlib.suppress(FileExistsError):
                os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder, follow_symlinks=True)
                return name
        raise errors.AlreadyExists(f"{os.path.join(self.folder, self.names[0])} already exists")

    @contextlib.contextmanager
    def _os_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            if exc.errno in (errno.EOPNOTSUPP, errno.EISDIR):
                raise errors.Unsupported(
                    f"the file system of {self.folder} does not support unnamed files: choose "
                    "dest= on another one, such as ext4 or xfs"
                ) from exc
            raise errors.OperationFailed(f"{self.folder}: {exc.strerror}") from exc


class _OutputFile:
    """A file being written, with its size."""

    def __init__(self, fd: int, source: str, max_bytes: int, report: ProgressCallback) -> None:
        self._fd, self._source, self._max_bytes, self._report = fd, source, max_bytes, report
        self._checked_bytes = 0
        self.size_bytes, self.path = 0, ""
        self._check_space()

    def write(self, data: bytes) -> None:
        """Append data. Raises InvalidInput, OperationFailed."""
        self.size_bytes += len(data)
        if self.size_bytes > self._max_bytes:
            raise _too_large(self._source, self._max_bytes)
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[os.write(self._fd, remaining) :]
        if self.size_bytes - self._checked_bytes > _CHECK_BYTES:
            self._checked_bytes = self.size_bytes
            self._check_space()
            self._report(self.size_bytes)

    def _check_space(self) -> None:
        usage = os.fstatvfs(self._fd)
        if usage.f_bavail * usage.f_frsize < RESERVED_BYTES + _CHECK_BYTES:
            free = units.human_bytes(usage.f_bavail * usage.f_frsize)
            reserved = units.human_bytes(RESERVED_BYTES)
            raise errors.OperationFailed(
                f"only {free} are free at the destination, {reserved} have to stay free"
            )
