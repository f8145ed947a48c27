"""Files of high availability on this master, for its own user: below ``virt/ha`` in the folder that
is beside its cachedir: /var/lib/salt/master for /var/cache/salt/master. A cache may be deleted.

What is written is on the disk, or the error says so. What cannot be read is never taken for
nothing: a guest would be forgotten by it.
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
from saltvirt.system import file_lock

AnyMessage = TypeVar("AnyMessage", bound=schema.Message)

# another verb holds the lock for as long as it writes one file
_PATIENCE_S = 10
_POLL_S = 0.05


def folder(opts: file_lock.Opts) -> Path:
    """Where they are: below the cachedir until the engine has moved them."""
    old, new = _folders(opts)
    return old if old.exists() and not new.exists() else new


def _folders(opts: file_lock.Opts) -> tuple[Path, Path]:
    """(below the cachedir, below what is beside it)."""
    cache = Path(opts["cachedir"])
    parts = list(cache.parts)
    if "cache" in parts:
        parts[len(parts) - 1 - parts[::-1].index("cache")] = "lib"
    return cache / "virt" / "ha", Path(*parts) / "virt" / "ha"


def move_folder(opts: file_lock.Opts) -> str:
    """Moves them out of the cachedir, where an older version has made them, and leaves a link: the
    older version, if it comes back, takes no file for no guests. Returns why they stay there, or
    nothing. For the engine, before it reads one. Raises OperationFailed where an older version has
    made new ones meanwhile."""
    old, new = _folders(opts)
    if old == new:
        return ""
    reason = "" if new.exists() else _try_move(old, new)
    if not reason:
        _link(old, new)
    return reason


def _link(old: Path, new: Path) -> None:
    if old.is_symlink() and not old.exists():
        old.unlink()
    with contextlib.suppress(OSError):
        if old.is_dir() and not old.is_symlink() and not any(old.iterdir()):
            old.rmdir()
    if not os.path.lexists(old):
        with contextlib.suppress(OSError):
            old.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            old.symlink_to(new)
    elif not old.is_symlink() and (old / "wishes.json").exists():
        raise errors.OperationFailed(
            f"{old} has the wishes that an older version of the engine wrote, and {new} those of "
            "this one: move away the folder whose wishes do not hold, then restart salt-master; "
            "nothing is fenced or restarted meanwhile"
        )


def _try_move(old: Path, new: Path) -> str:
    try:
        new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not old.exists():
            new.mkdir(mode=0o700)
            return ""
        with locked(old / "wishes.lock", "the engine virt_ha"):
            _move(old, new)
    except OSError as exc:
        with contextlib.suppress(OSError):
            old.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (
            f"what persons want is kept in {old}, which is a cache and may be deleted: cannot make "
            f"{new} ({exc.strerror}): make {new.parent.parent} for the master's user, then restart "
            "salt-master"
        )
    return ""


def _move(old: Path, new: Path) -> None:
    try:
        os.rename(old, new)
    except OSError as exc:
        if exc.errno != errno.EXDEV:
            raise
        temporary = new.with_name(".ha.part")
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(old, temporary)
        os.sync()
        os.rename(temporary, new)
        shutil.rmtree(old)


def write(path: Path, message: schema.Message) -> None:
    """Gives the file that content. Returns when it would outlive a loss of power."""
    private.write(str(path), _text(message))
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_volatile(path: Path, message: schema.Message) -> None:
    """The same of what nobody misses after a loss of power: no disk is waited for."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    handle = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    with open(handle, "w", encoding="utf-8") as file:
        file.write(_text(message))
    os.replace(temporary, path)


def _text(message: schema.Message) -> str:
    return json.dumps(message.to_answer(), separators=(",", ":"), sort_keys=True)


def read(path: Path, kind: type[AnyMessage]) -> AnyMessage | None:
    """What the file has; None where there is none. Raises OperationFailed for one that cannot be
    read: it is left as it is."""
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
    """Whether the file, which can be read, has that key."""
    return key in json.loads(path.read_bytes())


def _damaged(path: Path, reason: str) -> errors.OperationFailed:
    return errors.OperationFailed(
        f"{path} cannot be read: {reason}; put it back from a backup, or move it away and give the "
        "guests to high availability again"
    )


@contextlib.contextmanager
def locked(path: Path, operation: str, timeout_s: float = _PATIENCE_S) -> Iterator[None]:
    """Holds the lock of a file for the block. Raises OperationFailed, with who has it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    end = time.monotonic() + timeout_s
    while (handle := file_lock.take(path, operation)) is None:
        if time.monotonic() > end:
            raise errors.OperationFailed(f"{file_lock.owner(path)}, is under way; wait for it")
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        os.close(handle)
