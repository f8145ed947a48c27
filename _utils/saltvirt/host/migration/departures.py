"""Which guests have left this host, and their new hosts, so that they are not created a second
time."""

from __future__ import annotations

import contextlib
import json
import os
import time

from saltvirt.system import atomic_file, paths

FOLDER = f"{paths.STATE}/moved"


def record_departure(name: str, target: str, folder: str | None = None) -> None:
    """Record that the guest is on that host now."""
    folder = folder or FOLDER
    with contextlib.suppress(OSError):  # the migration has succeeded nevertheless
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, name)
        atomic_file.write(path, json.dumps({"host": target, "at": time.time()}).encode())


def departure_reason(name: str, folder: str | None = None) -> str | None:
    """Return why the guest must not be created on this host; None if it never left."""
    try:
        with open(os.path.join(folder or FOLDER, name), encoding="utf-8") as file:
            record = json.load(file)
        date = time.strftime("%Y-%m-%d", time.gmtime(record["at"]))
        return (
            f"{name} was migrated from here to {record['host']} on {date}: describe it in the SLS "
            "of that host; if it was deleted, virt.init on this host creates it again"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget(name: str, folder: str | None = None) -> None:
    """Remove the record: the guest is here again, or was removed."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder or FOLDER, name))
