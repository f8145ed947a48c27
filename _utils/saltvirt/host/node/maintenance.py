"""Maintenance mark of this host, stored as a file on the host itself."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from saltvirt import errors
from saltvirt.answers.maintenance import MaintenanceMark
from saltvirt.host import own_files
from saltvirt.system import atomic_file, paths

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
    mark = MaintenanceMark(reason_text, tuple(sorted(guests)))
    # durable: the host may be switched off soon after it is drained
    atomic_file.write(path, json.dumps(mark.to_answer()).encode(), mode=0o644)


def clear(path: Path = MARK) -> None:
    """Remove the mark."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
