"""Room that this host has given to a guest of its own and that is not filled yet.

Admission counts it like what is promised to guests on their way here (migration.reservation): so
disks can be copied without the lock of admission. It is renewed while that lasts, and holds no
longer than an hour when its process died.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

from saltvirt import errors
from saltvirt.host.migration import reservations
from saltvirt.migration import reservation

# after the name, which is the guest's own otherwise: what is promised to a guest that is there
# would not be counted
_GROWTH_SUFFIX = "+"


def forget(name: str, folder: str | None = None) -> None:
    """Takes away what a process that died promised the guest; called by who holds its lock."""
    folder = folder or reservations.FOLDER
    with contextlib.suppress(FileNotFoundError):
        for file in os.listdir(folder):
            growth = reservation.parse(file)
            if growth and growth.name == name + _GROWTH_SUFFIX:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, file))


class GrowthReservation:
    """What the guest of that name is to get more. disks: pairs of a folder or a storage pool and
    bytes. To be made under the lock of admission, by who holds the guest's own lock."""

    def __init__(
        self,
        name: str,
        memory_kib: int = 0,
        vcpus: int = 0,
        disks: Iterable[tuple[str, int]] = (),
        folder: str | None = None,
    ) -> None:
        self._folder = folder or reservations.FOLDER
        growth = reservation.Reservation(
            name + _GROWTH_SUFFIX, max(0, memory_kib), max(0, vcpus), int(time.time()), tuple(disks)
        )
        self._path = os.path.join(self._folder, growth.file)
        try:
            os.makedirs(self._folder, mode=0o711, exist_ok=True)
            forget(name, self._folder)
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as exc:
            raise errors.OperationFailed(
                f"cannot write down what {name} is to get: {self._folder}: {exc.strerror}"
            ) from exc
        self._renewed = time.monotonic()

    def renew(self, *_progress: object) -> None:
        if time.monotonic() - self._renewed > reservation.RENEW_S:
            self._renewed = time.monotonic()
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._path)

    def release(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
