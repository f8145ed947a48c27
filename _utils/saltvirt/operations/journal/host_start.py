"""Run what follows the start of a hypervisor: one run at a time, and one more for all starts during
a run.

Any minion can fire start events at any rate, with any name in them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from saltvirt.system import file_lock

T = TypeVar("T")


def once(opts: file_lock.Opts, host: str, begin: Callable[[], T]) -> T | None:
    """Call ``begin``, after the current run for this host has ended.

    Returns its result; None if another call is already waiting, whose run covers this start, too.
    Raises OperationFailed after ``virt:queue_timeout``.
    """
    folder = Path(opts["cachedir"]) / "virt" / "starts"
    folder.mkdir(parents=True, exist_ok=True)
    purpose, running = f"the orchestration for the start of {host}", folder / host
    waiting = file_lock.take(folder / f"{host}.next", purpose)
    if waiting is None:
        return None
    with contextlib.ExitStack() as queue:
        queue.callback(os.close, waiting)
        with file_lock.held(opts, running, purpose):
            queue.close()
            return begin()
