"""Is this host being drained? The mark is a file on the host: no database knows better."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from saltvirt import errors, places
from saltvirt.host import own_files

MARK = Path(places.STATE, "maintenance.json")


def read(path: Path = MARK) -> dict[str, Any] | None:
    """{"reason": str, "guests": [names that were moved away]}, or None.

    The reason is None on a host that takes guests again, and has not got all of its own back.
    Raises OperationFailed for a mark that cannot be read.
    """
    try:
        with own_files.permitted():
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found["reason"], (str, type(None))) and isinstance(found["guests"], list):
            return found
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        pass
    raise errors.OperationFailed(
        f"{path}, the mark of a host in maintenance, is damaged: virt.maintenance off=True on this "
        "host takes it away"
    )


def write(reason: str | None, guests: Iterable[str] = (), path: Path = MARK) -> None:
    """Marks the host; what was marked before is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"reason": reason, "guests": sorted(guests)}), encoding="utf-8")
    os.replace(fresh, path)


def clear(path: Path = MARK) -> None:
    """Takes the mark away."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
