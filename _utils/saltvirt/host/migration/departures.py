"""Which guests have left this host, and where to: so that nothing makes them a second time."""

from __future__ import annotations

import contextlib
import json
import os
import time

from saltvirt.host import paths

FOLDER = f"{paths.STATE}/moved"


def record_departure(name: str, target: str, folder: str | None = None) -> None:
    """The guest is on that host from now on."""
    folder = folder or FOLDER
    with contextlib.suppress(OSError):  # the move stands all the same
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, name)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"host": target, "at": time.time()}, file)
        os.replace(f"{path}.new", path)


def departure_reason(name: str, folder: str | None = None) -> str | None:
    """Why the guest is not to be made here, in words; None when it never left."""
    try:
        with open(os.path.join(folder or FOLDER, name), encoding="utf-8") as file:
            record = json.load(file)
        date = time.strftime("%Y-%m-%d", time.gmtime(record["at"]))
        return (
            f"{name} was moved from here to {record['host']} on {date}: describe it in the SLS of "
            "that host; where it is gone for good, virt.init on this host creates it again"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget(name: str, folder: str | None = None) -> None:
    """The guest is here again, or was removed from here."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder or FOLDER, name))
