"""Prevent a download from filling the file system that this host's guests use."""

from __future__ import annotations

import errno
import os
import shutil

from saltvirt import errors
from saltvirt.units import human_bytes

MAX_BYTES = 2 * 1024**4
_RESERVED_BYTES = 1024**3  # or a twentieth of a small file system
_CHECK_STEP_BYTES = 16 * 1024**2


def is_full(exc: BaseException) -> bool:
    """Whether the error means that the file system or a quota is full."""
    return isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT)


class SpaceGuard:
    """The free space for one download. label: its address for display. folder: its target."""

    def __init__(self, label: str, folder: str) -> None:
        self._label = label
        self._folder = folder
        self._last_done_bytes, self._next_check_bytes = 0, 0

    def check(self, done_bytes: int, total_bytes: int | None) -> None:
        """Raise Refused if the download is too large. Call it with the received and the total bytes
        (0 or None if unknown) as often as convenient."""
        is_restarted, self._last_done_bytes = done_bytes < self._last_done_bytes, done_bytes
        if done_bytes < self._next_check_bytes and not is_restarted:
            return
        self._next_check_bytes = done_bytes + _CHECK_STEP_BYTES
        if max(done_bytes, total_bytes or 0) > MAX_BYTES:
            raise errors.Refused(f"{self._label} is larger than {human_bytes(MAX_BYTES)}")
        disk = shutil.disk_usage(self._folder)
        missing_bytes = 0
        if not total_bytes or done_bytes < total_bytes:
            missing_bytes = max(_CHECK_STEP_BYTES, (total_bytes or 0) - done_bytes)
        reserve_bytes = min(_RESERVED_BYTES, disk.total // 20)
        if missing_bytes + reserve_bytes > disk.free:
            size = (
                human_bytes(total_bytes) if total_bytes else f"more than {human_bytes(done_bytes)}"
            )
            raise errors.Refused(
                f"{self._label} has {size}, but {os.path.abspath(self._folder)} has "
                f"{human_bytes(disk.free)} free, of which {human_bytes(reserve_bytes)} are "
                "reserved: free some space"
            )
