"""Keeps a download from filling the file system on which this host's guests are."""

from __future__ import annotations

import errno
import os
import shutil

from saltvirt import errors
from saltvirt.units import human_bytes

MOST_BYTES = 2 * 1024**4
_LEFT_BYTES = 1024**3  # or a twentieth of a small file system
_STEP = 16 * 1024**2


def is_full(exc: BaseException) -> bool:
    """Whether the file system, or a quota, has no more room."""
    return isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT)


class Room:
    """The room for one download. what: its address, as it may be shown. folder: where it goes."""

    def __init__(self, what: str, folder: str) -> None:
        self._what = what
        self._folder = folder
        self._seen, self._next = 0, 0

    def check(self, done: int, total: int | None) -> None:
        """Called with what is there and what there will be (0 or None: nobody knows), as often
        as one likes. Raises Refused when it is too much."""
        begun_anew, self._seen = done < self._seen, done
        if done < self._next and not begun_anew:
            return
        self._next = done + _STEP
        if max(done, total or 0) > MOST_BYTES:
            raise errors.Refused(f"{self._what} is larger than {human_bytes(MOST_BYTES)}")
        disk = shutil.disk_usage(self._folder)
        more = max(_STEP, (total or 0) - done) if not total or done < total else 0
        left = min(_LEFT_BYTES, disk.total // 20)
        if more + left > disk.free:
            size = human_bytes(total) if total else f"more than {human_bytes(done)}"
            raise errors.Refused(
                f"{self._what} has {size} and {os.path.abspath(self._folder)} has "
                f"{human_bytes(disk.free)} free, of which {human_bytes(left)} stay free: make room"
            )
