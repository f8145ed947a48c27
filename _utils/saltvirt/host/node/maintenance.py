"""Maintenance mark of this host, stored as a file on the host itself."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from saltvirt import errors
from saltvirt.answers.maintenance import MaintenanceMark
from saltvirt.host import own_files, paths

MARK = Path(paths.STATE, "maintenance.json")


def read(path: Path = MARK) -> MaintenanceMark | None:
    """Return the mark, or None. Raises OperationFailed if it cannot be read."""
    try:
        with own_files.permitted():
            data = json.loads(path.read_text(encoding="utf-8"))
        return MaintenanceMark.from_answer(data, str(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, errors.BadAnswer):
        raise errors.OperationFailed(
            f"{path}, the mark of a host in maintenance, is damaged: virt.maintenance off=True on "
            "this host takes it away"
        ) from None


def reason() -> str | None:
    """Return the reason why this host accepts no guests, or None."""
    mark = read()
    return mark.reason if mark else None


def write(reason_text: str | None, guests: Iterable[str] = (), path: Path = MARK) -> None:
    """Mark the host as in maintenance, replacing an existing mark.

    reason_text: the reason in the mark.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new_path = path.with_suffix(".new")
    mark = MaintenanceMark(reason_text, tuple(sorted(guests)))
    with open(new_path, "w", encoding="utf-8") as file:
        file.write(json.dumps(mark.to_answer()))
        file.flush()
        os.fsync(file.fileno())  # the host may be switched off soon after it is drained
    os.replace(new_path, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def clear(path: Path = MARK) -> None:
    """Remove the mark."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
