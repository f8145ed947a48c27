"""File operations that survive a crash, a full disk and concurrent processes."""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from saltvirt.errors import PkiError
from saltvirt.system import atomic_file, file_lock
from saltvirt.system.atomic_file import Owner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TEMPORARY = ".saltvirt-"


def read(path: str | Path) -> bytes | None:
    """The content of a file, or None if it does not exist."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise PkiError(f"cannot read {path}: {exc.strerror}") from exc
    except ValueError as exc:  # a NUL, or half a character
        raise PkiError(f"cannot read {path}: {exc}") from exc


@dataclass(frozen=True)
class NewFile:
    """A file to write. owner: (uid, gid), or None for the process' own."""

    path: Path
    data: bytes
    mode: int = 0o600
    owner: Owner | None = None


def write(path: str | Path, data: bytes, mode: int = 0o600, owner: Owner | None = None) -> None:
    """Replace one file; see ``write_all``."""
    write_all([NewFile(Path(path), data, mode, owner)])


def write_all(new_files: Iterable[NewFile]) -> None:
    """Replace each file atomically after all of them are stored on the disk.

    Readers see the old or the new content. Raises PkiError, and then leaves the old files untouched
    and no temporary files.
    """
    staged: list[tuple[str, NewFile]] = []
    path = None
    try:
        for new in new_files:
            path = new.path
            if not new.data:
                raise PkiError(f"refusing to write an empty {path}")
            _stage(new, staged)
        for temporary, new in staged:
            path = new.path
            atomic_file.rename(temporary, path)
    except OSError as exc:
        raise PkiError(f"cannot write {path}: {exc.strerror}") from exc
    finally:
        for temporary, _new in staged:
            atomic_file.discard(temporary)


def _stage(new: NewFile, staged: list[tuple[str, NewFile]]) -> None:
    temporary = str(new.path.with_name(f"{_TEMPORARY}{new.path.name}.{secrets.token_hex(8)}"))
    os.close(atomic_file.stage(temporary, new.data, mode=new.mode, owner=new.owner))
    staged.append((temporary, new))


def rename(source: str | Path, target: str | Path) -> None:
    """Move a file over another one within a folder, durably."""
    try:
        atomic_file.rename(source, target)
    except OSError as exc:
        raise PkiError(f"cannot move {source} to {target}: {exc.strerror}") from exc


def folder(path: str | Path, mode: int = 0o700, owner: Owner | None = None) -> Path:
    """The folder; creates it with that mode if it is missing."""
    path = Path(path)
    try:
        if not path.is_dir():
            folder_parent = path.parent
            folder_parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=mode, exist_ok=True)
            path.chmod(mode)
            if owner is not None:
                os.chown(path, *owner)
    except OSError as exc:
        raise PkiError(f"cannot create the folder {path}: {exc.strerror}") from exc
    return path


def sweep(path: str | Path) -> None:
    """Remove temporary files of a killed process. Hold the folder's lock."""
    for leftover in Path(path).glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            leftover.unlink()


def private(path: str | Path, mode: int = 0o600) -> bool:
    """Remove permissions beyond ``mode``, such as Salt 3007 set. True if there were any."""
    try:
        if Path(path).stat().st_mode & 0o7777 & ~mode:
            Path(path).chmod(mode)
            return True
    except FileNotFoundError:
        pass
    except OSError as exc:
        raise PkiError(
            f"cannot remove the permissions of others from {path}: {exc.strerror}"
        ) from exc
    return False


@contextlib.contextmanager
def locked(path: str | Path, shared: bool = False, timeout_s: float = 60) -> Iterator[None]:
    """Hold a lock between processes and threads for the block.

    The kernel releases it if the process dies. Raises PkiError if others hold it longer than
    ``timeout_s``.
    """
    try:
        handle = file_lock.acquire(path, shared=shared, timeout_s=timeout_s)
    except OSError as exc:
        raise PkiError(f"cannot open the lock {path}: {exc.strerror}") from exc
    if handle is None:
        raise PkiError(
            f"another process has held {path} for {timeout_s} s: find it with fuser {path}"
        )
    try:
        yield
    finally:
        os.close(handle)
