"""Access to files below one folder. Paths are resolved part by part, and symbolic links are never
followed.

Writes are atomic, and flushed to disk when the function returns.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator

from saltvirt import errors, sanitize
from saltvirt.system import atomic_file, file_lock
from saltvirt.units import short_repr

_PART = re.compile(r"[A-Za-z0-9._-]{1,255}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LONGEST_OWNER = 200
TEMPORARY = ".part-"


class LockUnsupported(errors.OperationFailed):
    """The file system does not support locks."""


class Busy(errors.OperationFailed):
    """Another process holds the lock."""


def check_absolute(folder: object) -> str:
    """Check that the folder is an absolute path. Raises InvalidInput."""
    if not isinstance(folder, str) or not folder.startswith("/"):
        raise errors.InvalidInput(f"folder must be an absolute path, not {short_repr(folder)}")
    return folder


class SafeFolder:
    """A folder and everything below it. Raises InvalidInput if it is missing, a link, not a folder,
    or if other users could write to it."""

    def __init__(self, root: str) -> None:
        self.root = check_absolute(root)
        try:
            status = os.lstat(root)
        except (OSError, ValueError) as exc:
            raise errors.InvalidInput(f"cannot use the folder {root}: {_reason(exc)}") from exc
        if not stat.S_ISDIR(status.st_mode):
            raise errors.InvalidInput(f"{root} is not a folder")
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise errors.InvalidInput(
                f"{root} must belong to root, and other users must not be able to write to it"
            )

    @property
    def is_read_only(self) -> bool:
        """Whether the file system is read-only, such as a snapshot or a failed file system."""
        return bool(os.statvfs(self.root).f_flag & os.ST_RDONLY)

    def path(self, *parts: str) -> str:
        """Return the absolute path of a file for a tool, after checking that its folders are not
        links."""
        with self._parent(parts) as (_fd, name):
            return os.path.join(self.root, *parts[:-1], name)

    def names(self, *parts: str) -> list[str]:
        """Return the sorted names in a folder; an empty list if it does not exist."""
        try:
            with self._open_folder(parts) as fd:
                return sorted(os.listdir(fd))
        except errors.NotFound:
            return []

    def exists(self, *parts: str) -> bool:
        """Whether something with this name exists."""
        try:
            with self._parent(parts) as (fd, name):
                os.stat(name, dir_fd=fd, follow_symlinks=False)
        except (FileNotFoundError, errors.NotFound):
            return False
        return True

    def lengths(self, *parts: str) -> dict[str, int]:
        """Return the sizes of the regular files in a folder."""
        sizes = {}
        with self._open_folder(parts) as fd:
            for name in os.listdir(fd):
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        sizes[name] = status.st_size
        return sizes

    def read(self, *parts: str, max_bytes: int) -> bytes:
        """Read a regular file. Raises NotFound, and BadAnswer if it is not a regular file or too
        large."""
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
        """Yield the descriptor of a regular file. Raises what read raises."""
        fd = self._file(parts, os.O_RDONLY)
        try:
            yield fd
        finally:
            os.close(fd)

    def make(self, *parts: str) -> None:
        """Create a folder with its parents, accessible for root only, unless it exists."""
        for end in range(1, len(parts) + 1):
            with self._parent(parts[:end]) as (fd, name), self._os_errors(parts[:end]):
                try:
                    os.mkdir(name, 0o700, dir_fd=fd)
                except FileExistsError:
                    continue
                os.fsync(fd)

    def write(self, *parts: str, data: bytes) -> None:
        """Create or replace a file atomically."""
        with self._parent(parts) as (fd, name), self._os_errors(parts):
            atomic_file.write(name, data, part=f"{TEMPORARY}{name}", dir_fd=fd)

    def sync(self, *parts: str) -> None:
        """Flush all files of a folder, and their names, to disk."""
        with self._open_folder(parts) as fd, self._os_errors(parts):
            for name in os.listdir(fd):
                file_fd = self._file((*parts, name), os.O_RDONLY)
                try:
                    os.fsync(file_fd)
                finally:
                    os.close(file_fd)
            os.fsync(fd)

    def rename(self, *parts: str, to: str) -> None:
        """Rename a file or folder within its folder. Raises AlreadyExists."""
        with self._parent(parts) as (fd, name), self._os_errors(parts):
            if self.exists(*parts[:-1], to):
                raise errors.AlreadyExists(
                    f"{self._display_path((*parts[:-1], to))} already exists"
                )
            atomic_file.rename(name, _part(to), dir_fd=fd)

    def remove(self, *parts: str) -> None:
        """Remove a file, a link itself, or a folder with its content."""
        with self._parent(parts) as (fd, name), self._os_errors(parts):
            remove(name, fd)
            os.fsync(fd)

    @contextlib.contextmanager
    def lock(self, *parts: str, wait_s: float = 0, purpose: str = "") -> Iterator[None]:
        """Hold an exclusive lock for the block; it ends with the process. purpose: shown to
        processes that find it locked. Raises Busy."""
        fd = self._file(parts, os.O_RDWR | os.O_CREAT)
        try:
            self._lock(fd, parts, wait_s=wait_s)
            with contextlib.suppress(OSError):  # full: only the message is lost
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{purpose}, process {os.getpid()}".encode() if purpose else b"", 0)
            yield
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def file_lock(self, *parts: str, exclusive: bool = False) -> Iterator[None]:
        """Lock an existing file for the block, shared or exclusive. Raises Busy, and NotFound if it
        was removed."""
        fd = self._file(parts, os.O_RDWR if exclusive else os.O_RDONLY)
        try:
            with contextlib.ExitStack() as locked:
                if not exclusive and self.is_read_only:  # a server may refuse locks
                    locked.enter_context(contextlib.suppress(LockUnsupported))
                self._lock(fd, parts, shared=not exclusive)
            with self.open_file(*parts) as now:
                if os.fstat(now).st_ino != os.fstat(fd).st_ino:
                    raise errors.NotFound(f"{self._display_path(parts)} was replaced")
            yield
        finally:
            os.close(fd)

    def _lock(
        self, fd: int, parts: tuple[str, ...], shared: bool = False, wait_s: float = 0
    ) -> None:
        try:
            locked = file_lock.lock(fd, shared=shared, timeout_s=wait_s)
        except OSError as exc:
            raise LockUnsupported(
                f"cannot lock {self._display_path(parts)}: {_reason(exc)}"
            ) from exc
        if not locked:
            raise Busy(f"{self._display_path(parts[:-1])} is locked by another process{_owner(fd)}")

    def _file(self, parts: tuple[str, ...], flags: int) -> int:
        with self._parent(parts) as (parent, name), self._os_errors(parts):
            fd = os.open(name, flags | _FILE, 0o600, dir_fd=parent)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise errors.BadAnswer(f"{self._display_path(parts)} is not a regular file")
        return fd

    @contextlib.contextmanager
    def _parent(self, parts: tuple[str, ...]) -> Iterator[tuple[int, str]]:
        *above, name = parts
        with self._open_folder(tuple(above)) as fd:
            yield fd, _part(name)

    @contextlib.contextmanager
    def _open_folder(self, parts: tuple[str, ...]) -> Iterator[int]:
        """Yield the descriptor of a folder."""
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
        """Convert errors of the system to VirtError."""
        try:
            yield
        except FileNotFoundError as exc:
            raise errors.NotFound(f"{self._display_path(parts)} does not exist") from exc
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR):
                raise errors.BadAnswer(
                    f"{self._display_path(parts)} has an unexpected type"
                ) from exc
            raise errors.OperationFailed(f"{self._display_path(parts)}: {_reason(exc)}") from exc

    def _display_path(self, parts: tuple[str, ...]) -> str:
        return os.path.join(self.root, *parts)


def _owner(fd: int) -> str:
    """Return the purpose that the holder of the lock wrote."""
    with contextlib.suppress(OSError):
        text = os.pread(fd, _LONGEST_OWNER, 0).decode("utf-8", "replace")
        return f": {sanitize.one_line(text)}" if text else ""
    return ""


def _part(name: str) -> str:
    if not _PART.fullmatch(name) or name in (".", ".."):
        raise errors.BadAnswer(f"{short_repr(name)} is not a valid file name")
    return name


def remove(name: str, fd: int) -> None:
    """Remove a file, a link itself, or a folder with its content. fd: descriptor of its parent."""
    try:
        below = os.open(name, _FOLDER, dir_fd=fd)
    except FileNotFoundError:
        return
    except OSError:  # not a folder
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
