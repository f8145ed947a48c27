"""Files of high availability on the master, readable by its own user only, in ``virt/ha`` below the
folder beside its cachedir: /var/lib/salt/master for /var/cache/salt/master, because a cache may be
deleted.

What is written is on disk, or an error is raised. A file that cannot be read never counts as empty,
because a guest would be forgotten.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from saltvirt import errors, schema
from saltvirt.fleet import private
from saltvirt.system import atomic_file, file_lock

AnyMessage = TypeVar("AnyMessage", bound=schema.Message)

# another verb holds the lock only while it writes one file
_PATIENCE_S = 10
_POLL_S = 0.05


def folder(opts: file_lock.Opts) -> Path:
    """Return the folder: below the cachedir until the engine has moved it."""
    old, new = _folders(opts)
    return old if old.exists() and not new.exists() else new


def _folders(opts: file_lock.Opts) -> tuple[Path, Path]:
    """Return (the folder below the cachedir, the folder below its sibling)."""
    cache = Path(opts["cachedir"])
    parts = list(cache.parts)
    if "cache" in parts:
        parts[len(parts) - 1 - parts[::-1].index("cache")] = "lib"
    return cache / "virt" / "ha", Path(*parts) / "virt" / "ha"


def move_folder(opts: file_lock.Opts) -> str:
    """Create the folder, with the files that are below the cachedir because it could not be created
    before. Return why they stay there, or nothing. The engine calls this before it reads a
    file."""
    old, new = _folders(opts)
    return "" if old == new or new.exists() else _try_move(old, new)


def _try_move(old: Path, new: Path) -> str:
    try:
        new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not old.exists():
            new.mkdir(mode=0o700)
            return ""
        with locked(old / "desired_state.lock", "the engine virt_ha"):
            _move(old, new)
    except OSError as exc:
        with contextlib.suppress(OSError):
            old.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (
            f"the desired state is in {old}, a cache that may be deleted, because {new} cannot be "
            f"created ({exc.strerror}): create {new.parent.parent} for the master's user, then "
            "restart salt-master"
        )
    return ""


def _move(old: Path, new: Path) -> None:
    try:
        atomic_file.rename(old, new)
    except OSError as exc:
        if exc.errno != errno.EXDEV:
            raise
        temporary = new.with_name(".ha.part")
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(old, temporary)
        os.sync()
        atomic_file.rename(temporary, new)
        shutil.rmtree(old)


def write(path: Path, message: schema.Message) -> None:
    """Write the file. It is on disk when this returns."""
    private.write(str(path), _text(message))


def write_volatile(path: Path, message: schema.Message) -> None:
    """Write a file that need not survive a power failure, without waiting for the disk."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_file.write(path, _text(message).encode(), durable=False)


def _text(message: schema.Message) -> str:
    return json.dumps(message.to_answer(), separators=(",", ":"), sort_keys=True)


def read(path: Path, kind: type[AnyMessage]) -> AnyMessage | None:
    """Read the file; None if it does not exist. Raises OperationFailed if it cannot be read; it is
    left as it is."""
    try:
        data: Any = json.loads(path.read_bytes())
        return kind.from_answer(data, str(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as exc:
        raise _damaged(path, str(exc)) from exc
    except errors.BadAnswer as exc:
        raise _damaged(path, exc.text) from exc


def has_key(path: Path, key: str) -> bool:
    """Whether the file, which is readable, has that key."""
    return key in json.loads(path.read_bytes())


def _damaged(path: Path, reason: str) -> errors.OperationFailed:
    return errors.OperationFailed(
        f"{path} cannot be read: {reason}; restore it from a backup, or move it away and give the "
        "guests to high availability again"
    )


@contextlib.contextmanager
def locked(path: Path, operation: str, timeout_s: float = _PATIENCE_S) -> Iterator[None]:
    """Hold the lock of a file for the block. Raises OperationFailed, with the owner of the lock."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    end = time.monotonic() + timeout_s
    while (handle := file_lock.take(path, operation)) is None:
        if time.monotonic() > end:
            raise errors.OperationFailed(f"{file_lock.owner(path)}, is running; wait for it")
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        os.close(handle)
