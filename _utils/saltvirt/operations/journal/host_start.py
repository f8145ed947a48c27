"""What is done when a hypervisor starts: once at a time, and once more for all that came meanwhile.

Any minion fires start events as often as it likes, with any name in them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from saltvirt.system import file_lock

T = TypeVar("T")


def once(opts: file_lock.Opts, host: str, begin: Callable[[], T]) -> T | None:
    """Calls ``begin`` when nobody else does so for this host; waits for who does.

    Returns its result; None when another waits already, whose turn will see what is new, too.
    Raises OperationFailed after ``virt:queue_timeout``.
    """
    folder = Path(opts["cachedir"]) / "virt" / "starts"
    folder.mkdir(parents=True, exist_ok=True)
    purpose, running = f"what {host} gets at its start", folder / host
    waiting = file_lock.take(folder / f"{host}.next", purpose)
    if waiting is None:
        return None
    try:
        handle = file_lock.wait(
            opts, lambda: file_lock.take(running, purpose), lambda: file_lock.owner(running)
        )
    finally:
        os.close(waiting)
    try:
        return begin()
    finally:
        os.close(handle)
