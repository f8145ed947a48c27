"""Capacity that a growing guest of this host has reserved.

Admission counts it like reservations of incoming migrations, so disks can be copied without the
admission lock. The process renews it; if the process dies, it expires after an hour.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

from saltvirt import errors
from saltvirt.host.migration import reservations
from saltvirt.migration import reservation

# suffix of the name; a reservation with the name of an existing guest
# would not be counted
_GROWTH_SUFFIX = "+"


def forget(name: str, folder: str | None = None) -> None:
    """Delete the reservation of a dead process. The caller holds the guest's lock."""
    folder = folder or reservations.FOLDER
    with contextlib.suppress(FileNotFoundError):
        for file in os.listdir(folder):
            growth = reservation.parse(file)
            if growth and growth.name == name + _GROWTH_SUFFIX:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, file))


class GrowthReservation:
    """Reservation for the growth of a guest.

    disks: pairs of a folder or pool and bytes. Create it under the admission lock, while holding
    the guest's lock.
    """

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
                f"cannot record the reservation for {name}: {self._folder}: {exc.strerror}"
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
