"""When a job of this host made its last step, for the master that asks whether it goes on.

One file a process, as a job is one; it goes with the job. An event tells the same sooner, but Salt
does not prove who sent it: what the master asks for is signed.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import Any

from saltvirt import settings
from saltvirt.host.domain import guest_lock
from saltvirt.images import locks


def folder(get: Callable[..., Any]) -> str:
    """Where they are written down. get: Salt's ``config.get``."""
    return os.path.join(settings.folder(get, "lock", guest_lock.FOLDER), "steps")


def made(where: str, within_s: float = 0) -> None:
    """This process has made a step. within_s: the next one may take so long."""
    path = os.path.join(locks.private(where), str(os.getpid()))
    with contextlib.suppress(OSError):  # a full /run stops nobody's work
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"at": time.monotonic(), "within_s": within_s}, file)
        os.replace(f"{path}.new", path)


def last(where: str, pid: int | str) -> dict[str, float]:
    """``{"quiet_s", "within_s"}`` of the last step of a process; {} when it made none."""
    try:
        with open(os.path.join(where, str(int(pid))), encoding="utf-8") as file:
            found = json.load(file)
        return {"quiet_s": time.monotonic() - found["at"], "within_s": found["within_s"]}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def ended(where: str) -> None:
    """The job of this process is at its end; what killed processes left goes as well."""
    with contextlib.suppress(OSError):
        for name in os.listdir(where):
            pid = name.partition(".")[0]
            if pid == str(os.getpid()) or not os.path.exists(f"/proc/{pid}"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(where, name))
