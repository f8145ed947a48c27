"""Files in a backup are looked at and taken out by libguestfs: its appliance reads the guest's file
systems, this machine mounts none of them.

All in there is the guest's, and may be made to harm who reads it. No name of it becomes a name
here, sizes are limited by what arrives and not by what is told, and what is written while a file
system is brought in order goes to a folder that is gone afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from saltvirt import errors, places, units
from saltvirt.backuphost import daemon, keep, layers
from saltvirt.backuphost.folder import Folder
from saltvirt.backuphost.target import Target
from saltvirt.backups import files, ident, record
from saltvirt.backups.files import FileGot, FilesSeen, SeenFile
from saltvirt.backups.record import Record
from saltvirt.backups.stock import Stock
from saltvirt.images import locks
from saltvirt.seed import guestfish
from saltvirt.seed.guestfish import Added, Session
from saltvirt.units import shown

GOT = f"{places.STATE}/backup-files"
_SCRATCH = f"{places.STATE}/backup-looks"
_WANTED = "install libguestfs-tools (Debian, Ubuntu: and guestfs-tools)"
# such are no file systems that anybody mounts
_NO_FILES = {"", "swap", "unknown", "crypto_LUKS", "LVM2_member", "linux_raid_member"}
_MOST_SYSTEMS, _MOST_MOUNTS = 64, 32
# a list of these needs no quotes
_PLAIN = re.compile(rb"[A-Za-z0-9._+@%:,=-]{1,255}")
_AT_ONCE = 100
_MOST_SAME = 1000
KEEPS_FREE_BYTES = 256 * 1024**2
_LOOKS_BYTES = 64 * 1024**2

# called while it goes on, with the bytes that are done
Tell = Callable[[int], object]


@dataclass(frozen=True)
class Wanted:
    """name: of the guest, or its UUID. backup: as ``ident.find`` takes it. path: in the guest.
    filesystem: the one that is looked into, by its device; None: those of the guest's system, where
    it mounts them."""

    name: str
    backup: str
    path: str
    filesystem: str | None = None


class _Look:
    """The guest's files, as long as the appliance runs."""

    def __init__(self, session: Session, systems: dict[str, str], missing: dict[str, str]) -> None:
        self.session, self.systems, self.missing = session, systems, missing

    def of(self, path: str, follow: bool) -> dict[str, int]:
        """The numbers of a file. follow: of what a link names, inside of the guest."""
        try:
            said = self.session.text("statns" if follow else "lstatns", path)
        except errors.SeedFailed as exc:
            raise errors.NotFound(f"{shown(path)} is not in the backup: {exc.text}") from exc
        return files.numbers(said)

    def seen(self, path: str) -> tuple[list[SeenFile], int]:
        """(what is in a folder, or the file itself; so many more are there)."""
        if files.kind(self.of(path, True)) != files.FOLDER:
            return [self._one(os.path.dirname(path), os.fsencode(os.path.basename(path)))], 0
        names = sorted(one for one in self.session.run("ls0", path, "-").split(b"\0") if one)
        told = names[: files.MOST]
        numbers = self._numbers(path, [one for one in told if _PLAIN.fullmatch(one)])
        found = [self._one(path, one, numbers.get(one)) for one in told]
        return found, len(names) - len(told)

    def _one(self, folder: str, raw: bytes, told: dict[str, int] | None = None) -> SeenFile:
        path = os.path.join(folder, os.fsdecode(raw))
        numbers = told or self.of(path, False)
        target = None
        if files.kind(numbers) == files.LINK:
            target = self.session.run("readlink", path).removesuffix(b"\n")
        return files.seen(raw, numbers, target)

    def _numbers(self, folder: str, names: list[bytes]) -> dict[bytes, dict[str, int]]:
        """Of many at once, each by itself where that is not said of all of them."""
        found: dict[bytes, dict[str, int]] = {}
        for first in range(0, len(names), _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            said = self.session.text("lstatnslist", folder, b" ".join(some).decode("ascii"))
            told = [files.numbers(part) for part in said.split("}") if part.strip()]
            if len(told) == len(some):
                found.update(zip(some, told, strict=True))
        return found


def look(target: Target, wanted: Wanted, tell: Tell) -> FilesSeen:
    """What is in a folder of a guest, or of one file what it is.

    tell: called while it goes on. Raises NotFound, InvalidInput, BadAnswer for a backup that is not
    good, Unsupported without libguestfs, OperationFailed where it cannot read it.
    """
    with _opened(target, wanted, tell) as (of, seen):
        found, more = seen.seen(wanted.path)
        return FilesSeen(of.ident, of.guest, tuple(found), more, seen.systems, seen.missing)


def get(
    target: Target, wanted: Wanted, dest: str | None, most_bytes: int, test: bool, tell: Tell
) -> FileGot:
    """Takes a file out, or a folder as a tar file, and says where it is: whole, or not at all.

    dest: the path that it gets, where nothing may be; None: one of our own. most_bytes: a larger
    one is refused. test: it is only looked for. Raises as look does, and AlreadyExists.
    """
    place = None if dest is None else _Place.of(dest)
    with _opened(target, wanted, tell) as (of, seen):
        numbers = seen.of(wanted.path, True)
        kind = files.kind(numbers)
        if kind not in (files.FILE, files.FOLDER):
            raise errors.InvalidInput(f"{shown(wanted.path)} is a {kind}: it has no content")
        length = numbers.get("st_size", 0) if kind == files.FILE else 0
        if length > most_bytes:
            raise _too_large(wanted.path, most_bytes)
        if test:
            return FileGot(of.ident, of.guest, kind, length)
        place = place or _Place.own(of, wanted.path, kind)
        with place.writing(wanted.path, most_bytes, tell) as out:
            if kind == files.FILE:
                seen.session.save(out.take, "download", wanted.path, "-")
            else:
                seen.session.save(out.take, "tar-out", wanted.path, "-", "numericowner:true")
        return FileGot(of.ident, of.guest, kind, out.size_bytes, out.path)


@contextlib.contextmanager
def _opened(target: Target, wanted: Wanted, tell: Tell) -> Iterator[tuple[Record, _Look]]:
    if not guestfish.available():
        raise errors.Unsupported(f"this machine cannot look into a backup: {_WANTED}")
    uuid, name, stock = _found(target, wanted)
    broken = stock.broken(name)
    with target.using(uuid, name) as found:
        of = replace(found, disks=tuple(one for one in found.disks if one.target not in broken))
        tell(0)
        try:
            with (
                locks.for_now(_SCRATCH, "look-") as folder,
                _disks(target, of, folder) as disks,
                guestfish.launched(disks, scratch=folder) as session,
            ):
                tell(0)
                seen = _mounted(session, wanted.filesystem)
                # a file that is on one of these is not seen, and nobody else would say so
                seen.missing.update({f"disk {disk}": why for disk, why in broken.items()})
                yield of, seen
        except errors.SeedFailed as exc:
            raise errors.OperationFailed(f"the files of {name} cannot be read: {exc.text}") from exc


@contextlib.contextmanager
def _disks(target: Target, of: Record, folder: str) -> Iterator[list[Added]]:
    """As the appliance is told of them. libguestfs opens no qcow2 that is encrypted: the storage
    daemon shows it without, to whom can reach the folder."""
    found = [layers.of(target, of, one) for one in of.disks]
    if not any(one.key for one in found):
        yield [Added(one.paths[0], record.QCOW2, True) for one in found]
        return
    where = os.path.join(folder, "nbd")
    names = [one.target for one in of.disks]
    shown = [one.shown(name) for one, name in zip(found, names, strict=True)]
    server = daemon.begin(shown, where)
    try:
        yield [Added(name, record.RAW, True, where) for name in names]
    finally:
        server.end()


def _found(target: Target, wanted: Wanted) -> tuple[str, str, Stock]:
    """(UUID, the backup, all of that guest). Raises BadAnswer where no disk of it is good."""
    stocks = {one: stock for one, stock in keep.named(target, wanted.name).items() if stock.last}
    if not stocks:
        raise errors.NotFound(f"there is no backup of {wanted.name} in {target.folder.root}")
    if len(stocks) > 1:
        known = ", ".join(sorted(stocks))
        raise errors.InvalidInput(f"several guests were called {wanted.name}: give one of {known}")
    [(uuid, stock)] = stocks.items()
    found = ident.find(stock.backups, wanted.backup, wanted.name)
    told = stock.backups[found].record
    if told is None or {*stock.broken(found)} >= {one.target for one in told.disks}:
        raise errors.BadAnswer(f"the backup {found} is not good: {stock.wrong(found)}")
    return uuid, found, stock


def _mounted(session: Session, wanted: str | None) -> _Look:
    lines = session.text("list-filesystems").splitlines()[:_MOST_SYSTEMS]
    raw = dict(line.partition(": ")[::2] for line in lines)
    systems = {files.name(os.fsencode(one)): files.name(raw[one].encode()) for one in raw}
    usable = [one for one, kind in raw.items() if kind.strip() not in _NO_FILES]
    if wanted is not None:
        if wanted not in raw:
            raise errors.NotFound(
                f"there is no file system {shown(wanted)}, but {', '.join(systems) or 'none'}"
            )
        session.run("mount-ro", wanted, "/")
        return _Look(session, systems, {})
    if len(usable) == 1:
        session.run("mount-ro", usable[0], "/")
        return _Look(session, systems, {})
    roots = session.text("inspect-os").split() if usable else []
    if len(roots) != 1:
        what = f"there are {len(roots)} systems" if roots else "there is no system"
        known = ", ".join(f"{one} ({kind})" for one, kind in systems.items()) or "none"
        raise errors.InvalidInput(
            f"{what} on the disks of the backup: say filesystem=; it has {known}"
        )
    return _Look(session, systems, _mount_system(session, roots[0]))


def _mount_system(session: Session, root: str) -> dict[str, str]:
    """Mounts what the system does, and says what of that could not be."""
    mounts, missing = {}, {}
    for line in session.text("inspect-get-mountpoints", root).splitlines()[:_MOST_MOUNTS]:
        point, _, device = line.partition(": ")
        mounts[point.strip()] = device.strip()
    for point in sorted(mounts, key=len):
        try:
            session.run("mount-ro", mounts[point], point)
        except errors.SeedFailed as exc:
            if point == "/":
                raise
            missing[files.name(os.fsencode(point))] = exc.text
    return missing


def _too_large(path: str, most_bytes: int) -> errors.InvalidInput:
    limit = units.human_bytes(most_bytes)
    return errors.InvalidInput(f"{shown(path)} is larger than {limit}: say most=SIZE for more")


def _refuse_shared(folder: str) -> None:
    """Raises InvalidInput where somebody else could put another folder in its place."""
    above = folder
    while above != "/":
        above = os.path.dirname(above)
        found = os.lstat(above)
        open_to_all = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, os.geteuid()) or open_to_all:
            raise errors.InvalidInput(f"{folder} is not root's alone: others can write to {above}")


class _Place:
    """Where a file goes: a folder that is ours alone, and the names that are tried there."""

    def __init__(self, folder: str, names: list[str]) -> None:
        self.folder, self.names = folder, names

    @classmethod
    def of(cls, dest: object) -> _Place:
        """The path that a person gave. Raises InvalidInput, AlreadyExists."""
        if not isinstance(dest, str) or not dest.startswith("/") or "\0" in dest:
            raise errors.InvalidInput(f"dest must be an absolute path, not {shown(dest)}")
        folder, name = os.path.split(dest)
        if name in ("", ".", ".."):
            raise errors.InvalidInput(f"dest must be the path of a file, not {shown(dest)}")
        if os.path.realpath(folder) != folder:
            raise errors.InvalidInput(
                f"a folder of dest is a link: {shown(os.path.realpath(folder))} is where it leads"
            )
        Folder(folder)
        _refuse_shared(folder)
        if os.path.lexists(dest):
            raise errors.AlreadyExists(f"{dest} is there already: nothing is overwritten")
        return cls(folder, [name])

    @classmethod
    def own(cls, of: Record, path: str, kind: str) -> _Place:
        """A name that nobody has yet, below GOT."""
        last = re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(path))[:100] or "root"
        end = ".tar" if kind == files.FOLDER else ""
        stem = f"{of.guest[:100]}-{ident.number(of.ident)}-{last}"
        again = [f"{stem}.{number}{end}" for number in range(2, _MOST_SAME)]
        return cls(locks.private(GOT), [f"{stem}{end}", *again])

    @contextlib.contextmanager
    def writing(self, path: str, most_bytes: int, tell: Tell) -> Iterator[_Out]:
        """A file for root alone, which has a name when the block has ended well, and no name
        before: whoever is killed leaves nothing."""
        how = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._told():
            folder = os.open(self.folder, how)
        try:
            with self._told():
                fd = os.open(".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600, dir_fd=folder)
            try:
                with self._told():
                    out = _Out(fd, path, most_bytes, tell)
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
        raise errors.AlreadyExists(
            f"{os.path.join(self.folder, self.names[0])} is there already: nothing is overwritten"
        )

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            if exc.errno in (errno.EOPNOTSUPP, errno.EISDIR):
                raise errors.Unsupported(
                    f"the file system of {self.folder} has no files without a name: give dest= on "
                    "another, such as ext4 or xfs"
                ) from exc
            raise errors.OperationFailed(f"{self.folder}: {exc.strerror}") from exc


class _Out:
    """A file that is written, and how much of it there is."""

    def __init__(self, fd: int, source: str, most_bytes: int, tell: Tell) -> None:
        self._fd, self._source, self._most, self._tell = fd, source, most_bytes, tell
        self._looked = 0
        self.size_bytes, self.path = 0, ""
        self._has_room()

    def take(self, data: bytes) -> None:
        """Puts it behind what is there. Raises InvalidInput, OperationFailed."""
        self.size_bytes += len(data)
        if self.size_bytes > self._most:
            raise _too_large(self._source, self._most)
        left = memoryview(data)
        while left:
            left = left[os.write(self._fd, left) :]
        if self.size_bytes - self._looked > _LOOKS_BYTES:
            self._looked = self.size_bytes
            self._has_room()
            self._tell(self.size_bytes)

    def _has_room(self) -> None:
        found = os.fstatvfs(self._fd)
        if found.f_bavail * found.f_frsize < KEEPS_FREE_BYTES + _LOOKS_BYTES:
            left = units.human_bytes(found.f_bavail * found.f_frsize)
            keeps = units.human_bytes(KEEPS_FREE_BYTES)
            raise errors.OperationFailed(
                f"{left} are free where it would be written, and {keeps} have to stay free"
            )
