"""Files of high availability on this master: below ``virt/ha`` in its cachedir, for its own user.

What is written is on the disk, or the error says so. What cannot be read is never taken for
nothing: a guest would be forgotten by it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from saltvirt import errors, wire
from saltvirt.fleet import private
from saltvirt.operations import held

AnyFact = TypeVar("AnyFact", bound=wire.Fact)

# another verb holds the lock for as long as it writes one file
_PATIENCE_S = 10
_LOOK_S = 0.05


def folder(opts: held.Opts) -> Path:
    """Where they are."""
    return Path(opts["cachedir"]) / "virt" / "ha"


def write(path: Path, fact: wire.Fact) -> None:
    """Gives the file that content. Returns when it would outlive a loss of power."""
    private.write(str(path), _text(fact))
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def show(path: Path, fact: wire.Fact) -> None:
    """The same of what nobody misses after a loss of power: no disk is waited for."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    handle = os.open(
        part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    with open(handle, "w", encoding="utf-8") as file:
        file.write(_text(fact))
    os.replace(part, path)


def _text(fact: wire.Fact) -> str:
    return json.dumps(fact.to_answer(), separators=(",", ":"), sort_keys=True)


def read(path: Path, kind: type[AnyFact]) -> AnyFact | None:
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


def _damaged(path: Path, why: str) -> errors.OperationFailed:
    return errors.OperationFailed(
        f"{path} cannot be read: {why}; put it back from a backup, or move it away and give the "
        "guests to high availability again"
    )


@contextlib.contextmanager
def locked(path: Path, what: str, patience_s: float = _PATIENCE_S) -> Iterator[None]:
    """Holds the lock of a file for the block. Raises OperationFailed, with who has it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    end = time.monotonic() + patience_s
    while (handle := held.take(path, what)) is None:
        if time.monotonic() > end:
            raise errors.OperationFailed(f"{held.owner(path)}, is under way; wait for it")
        time.sleep(_LOOK_S)
    try:
        yield
    finally:
        os.close(handle)
