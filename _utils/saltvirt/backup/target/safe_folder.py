"""Files below one folder: each place is named part by part, and no link is ever followed.

What is written is on the disk when the function returns, and there as a whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator

from saltvirt import errors, sanitize
from saltvirt.units import short_repr

_PART = re.compile(r"[A-Za-z0-9._-]{1,255}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PAUSE_S = 0.1
_LONGEST_OWNER = 200
TEMPORARY = ".part-"


class LockUnsupported(errors.OperationFailed):
    """The file system does not lock."""


class Busy(errors.OperationFailed):
    """Somebody else is at work there."""


def check_absolute(folder: object) -> str:
    """The folder as a person named it. Raises InvalidInput where it is no absolute path."""
    if not isinstance(folder, str) or not folder.startswith("/"):
        raise errors.InvalidInput(f"folder must be an absolute path, not {short_repr(folder)}")
    return folder


class SafeFolder:
    """One folder and all below it. Raises InvalidInput where it is missing, a link or no folder,
    or where others could write to it."""

    def __init__(self, root: str) -> None:
        self.root = check_absolute(root)
        try:
            status = os.lstat(root)
        except (OSError, ValueError) as exc:
            raise errors.InvalidInput(f"the folder {root} cannot be used: {_reason(exc)}") from exc
        if not stat.S_ISDIR(status.st_mode):
            raise errors.InvalidInput(f"{root} is no folder")
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise errors.InvalidInput(
                f"{root} belongs to somebody else, or others can write to it: backups are root's"
            )

    @property
    def is_read_only(self) -> bool:
        """Whether nobody can write here: a snapshot, or a file system that has failed."""
        return bool(os.statvfs(self.root).f_flag & os.ST_RDONLY)

    def path(self, *parts: str) -> str:
        """For a tool: the path of a place whose folders are no links."""
        with self._parent(parts) as (_fd, name):
            return os.path.join(self.root, *parts[:-1], name)

    def names(self, *parts: str) -> list[str]:
        """What is in a folder, sorted; nothing where it is not there."""
        try:
            with self._open_folder(parts) as fd:
                return sorted(os.listdir(fd))
        except errors.NotFound:
            return []

    def exists(self, *parts: str) -> bool:
        """Is anything of that name there?"""
        try:
            with self._parent(parts) as (fd, name):
                os.stat(name, dir_fd=fd, follow_symlinks=False)
        except (FileNotFoundError, errors.NotFound):
            return False
        return True

    def lengths(self, *parts: str) -> dict[str, int]:
        """The regular files in a folder, and how long each is."""
        sizes = {}
        with self._open_folder(parts) as fd:
            for name in os.listdir(fd):
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        sizes[name] = status.st_size
        return sizes

    def read(self, *parts: str, max_bytes: int) -> bytes:
        """A regular file. Raises NotFound; BadAnswer where it is none, or has more bytes."""
        with self.open_file(*parts) as fd:
            data = bytearray()
            while block := os.read(fd, min(1024**2, max_bytes + 1 - len(data))):
                data += block
            if len(data) > max_bytes:
                raise errors.BadAnswer(
                    f"{self._display_path(parts)} is longer than {max_bytes} bytes"
                )
            return bytes(data)

    @contextlib.contextmanager
    def open_file(self, *parts: str) -> Iterator[int]:
        """The descriptor of a regular file, for the block. Raises as read does."""
        fd = self._file(parts, os.O_RDONLY)
        try:
            yield fd
        finally:
            os.close(fd)

    def make(self, *parts: str) -> None:
        """A folder for us alone, where there is none yet; those above it, too."""
        for end in range(1, len(parts) + 1):
            with self._parent(parts[:end]) as (fd, name), self._os_errors(parts[:end]):
                try:
                    os.mkdir(name, 0o700, dir_fd=fd)
                except FileExistsError:
                    continue
                os.fsync(fd)

    def write(self, *parts: str, data: bytes) -> None:
        """A file, in the place of another of its name or anew, in one step."""
        with self._parent(parts) as (fd, name), self._os_errors(parts):
            part = f"{TEMPORARY}{name}"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=fd)
            try:
                _write(part, data, fd)
                os.replace(part, name, src_dir_fd=fd, dst_dir_fd=fd)
                os.fsync(fd)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part, dir_fd=fd)
                raise

    def sync(self, *parts: str) -> None:
        """All files of a folder are on the disk, and their names."""
        with self._open_folder(parts) as fd, self._os_errors(parts):
            for name in os.listdir(fd):
                file_fd = self._file((*parts, name), os.O_RDONLY)
                try:
                    os.fsync(file_fd)
                finally:
                    os.close(file_fd)
            os.fsync(fd)

    def rename(self, *parts: str, to: str) -> None:
        """Gives a place another name in its folder, where nothing of that name may be."""
        with self._parent(parts) as (fd, name), self._os_errors(parts):
            if self.exists(*parts[:-1], to):
                raise errors.AlreadyExists(
                    f"{self._display_path((*parts[:-1], to))} is there already"
                )
            os.replace(name, _part(to), src_dir_fd=fd, dst_dir_fd=fd)
            os.fsync(fd)

    def remove(self, *parts: str) -> None:
        """Takes away a file, or a folder with all in it; a link itself and not what it names."""
        with self._parent(parts) as (fd, name), self._os_errors(parts):
            remove(name, fd)
            os.fsync(fd)

    @contextlib.contextmanager
    def lock(self, *parts: str, wait_s: float = 0, purpose: str = "") -> Iterator[None]:
        """Nobody else has this lock for the block; it goes with its process. purpose: what is done
        there, for who comes meanwhile. Raises Busy."""
        fd = self._file(parts, os.O_RDWR | os.O_CREAT)
        try:
            self._flock(fd, fcntl.LOCK_EX, wait_s, parts)
            with contextlib.suppress(OSError):  # the file system is full: it is a message alone
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{purpose}, process {os.getpid()}".encode() if purpose else b"", 0)
            yield
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def file_lock(self, *parts: str, exclusive: bool = False) -> Iterator[None]:
        """A file that is there is in use for the block: by others, too, or by us alone.

        Raises Busy, and NotFound where it is gone.
        """
        fd = self._file(parts, os.O_RDWR if exclusive else os.O_RDONLY)
        try:
            with contextlib.ExitStack() as locked:
                if (
                    not exclusive and self.is_read_only
                ):  # nobody removes it; a server may give no lock
                    locked.enter_context(contextlib.suppress(LockUnsupported))
                self._flock(fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, 0, parts)
            with self.open_file(*parts) as now:
                if os.fstat(now).st_ino != os.fstat(fd).st_ino:
                    raise errors.NotFound(f"{self._display_path(parts)} is another by now")
            yield
        finally:
            os.close(fd)

    def _flock(self, fd: int, operation: int, wait_s: float, parts: tuple[str, ...]) -> None:
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, operation | fcntl.LOCK_NB)
                return
            except OSError as exc:
                if exc.errno not in (errno.EAGAIN, errno.EACCES):
                    raise LockUnsupported(
                        f"{self._display_path(parts)} cannot be locked: {_reason(exc)}"
                    ) from exc
            if time.monotonic() >= end:
                raise Busy(
                    f"somebody else is at work on {self._display_path(parts[:-1])}{_owner(fd)}"
                )
            time.sleep(_PAUSE_S)

    def _file(self, parts: tuple[str, ...], flags: int) -> int:
        with self._parent(parts) as (parent, name), self._os_errors(parts):
            fd = os.open(name, flags | _FILE, 0o600, dir_fd=parent)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise errors.BadAnswer(f"{self._display_path(parts)} is no regular file")
        return fd

    @contextlib.contextmanager
    def _parent(self, parts: tuple[str, ...]) -> Iterator[tuple[int, str]]:
        *above, name = parts
        with self._open_folder(tuple(above)) as fd:
            yield fd, _part(name)

    @contextlib.contextmanager
    def _open_folder(self, parts: tuple[str, ...]) -> Iterator[int]:
        """The descriptor of a folder."""
        with self._os_errors(()):
            fd = os.open(self.root, _FOLDER)
        try:
            for end, name in enumerate(parts, start=1):
                with self._os_errors(parts[:end]):
                    below = os.open(_part(name), _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _os_errors(self, parts: tuple[str, ...]) -> Iterator[None]:
        """What the system says of a place, as an error of ours."""
        try:
            yield
        except FileNotFoundError as exc:
            raise errors.NotFound(f"{self._display_path(parts)} is not there") from exc
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR):
                raise errors.BadAnswer(
                    f"{self._display_path(parts)} is not what it has to be"
                ) from exc
            raise errors.OperationFailed(f"{self._display_path(parts)}: {_reason(exc)}") from exc

    def _display_path(self, parts: tuple[str, ...]) -> str:
        return os.path.join(self.root, *parts)


def _owner(fd: int) -> str:
    """What who has the lock does."""
    with contextlib.suppress(OSError):
        text = os.pread(fd, _LONGEST_OWNER, 0).decode("utf-8", "replace")
        return f": {sanitize.one_line(text)}" if text else ""
    return ""


def _part(name: str) -> str:
    if not _PART.fullmatch(name) or name in (".", ".."):
        raise errors.BadAnswer(f"{short_repr(name)} is no name of a file here")
    return name


def _write(name: str, data: bytes, fd: int) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=fd)
    try:
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[os.write(file, remaining) :]
        os.fsync(file)
    finally:
        os.close(file)


def remove(name: str, fd: int) -> None:
    """Remove a file, a link itself, or a folder with all in it. fd: of the folder that has it."""
    try:
        below = os.open(name, _FOLDER, dir_fd=fd)
    except FileNotFoundError:
        return
    except OSError:  # a file, a link, a device
        os.unlink(name, dir_fd=fd)
        return
    try:
        for child in os.listdir(below):
            remove(child, below)
    finally:
        os.close(below)
    os.rmdir(name, dir_fd=fd)


def _reason(exc: Exception) -> str:
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
