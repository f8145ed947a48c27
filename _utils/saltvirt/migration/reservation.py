"""What a host has promised to guests that are being moved to it, as names of files.

A reservation is one small file: creating it requires only the host's storage pools, and a name is
created atomically. It is renewed while its migration lives; the host that has it reports its age.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

# seconds without renewal after which a reservation expires
KEEP_S = 3600
RENEW_S = 300


# the maximum length of a file name on Linux
_MAX_NAME_BYTES = 255
_SEPARATOR = "!"


@dataclass(frozen=True)
class Reservation:
    """A guest that is being moved: what it will use, and when that was promised (seconds).

    disks: pairs of a folder of the target (or a storage pool) and the maximum bytes of the guest's
    disks there. page_kib: as in a facts.Guest.
    """

    name: str
    memory_kib: int
    vcpus: int
    created_at: int
    disks: tuple[tuple[str, int], ...] = ()
    page_kib: int | None = None

    @property
    def file(self) -> str:
        text = f"{self.name}~{self.memory_kib}~{self.vcpus}~{self.created_at}"
        if self.page_kib is not None:
            text += f"{_SEPARATOR}p{self.page_kib}"
        for number, (folder, size) in enumerate(self.disks):
            max_bytes = (_MAX_NAME_BYTES - len(text.encode())) // (len(self.disks) - number)
            text += _disk(folder, size, max_bytes)
        return text


def _disk(folder: str, size: int, max_bytes: int) -> str:
    """Return a disk's part of the name. A folder that is too long is replaced by a parent, which is
    mostly on the same file system."""
    text = f"{_SEPARATOR}d{size}@{quote(folder, safe='')}"
    while len(text) > max_bytes and folder != "/" and folder.startswith("/"):
        folder = folder.rpartition("/")[0] or "/"
        text = f"{_SEPARATOR}d{size}@{quote(folder, safe='')}"
    return text if len(text) <= max_bytes else ""


def parse(file: str) -> Reservation | None:
    """Return the Reservation in a file's name, or None."""
    head, *details = file.split(_SEPARATOR)
    name, *numbers = head.rsplit("~", 3)
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return None
    pages = [item[1:] for item in details if item.startswith("p") and item[1:].isdecimal()]
    parts = [item[1:].partition("@") for item in details if item.startswith("d")]
    disks = tuple((unquote(folder), int(size)) for size, _, folder in parts if size.isdecimal())
    memory_kib, vcpus, created_at = map(int, numbers)
    return Reservation(name, memory_kib, vcpus, created_at, disks, int(pages[0]) if pages else None)


def stale(age_s: float) -> bool:
    """Return whether a reservation has expired because it was not renewed."""
    return age_s > KEEP_S


def pending(ages: Mapping[str, float], present: Container[str]) -> list[Reservation]:
    """Return the valid Reservations, without those of guests that have arrived.

    ages: file name to seconds since it was created or renewed, by the clock of its host; present:
    names of the host's guests.
    """
    reservations = [parse(file) for file, age_s in sorted(ages.items()) if not stale(age_s)]
    return [
        reservation
        for reservation in reservations
        if reservation and reservation.name not in present
    ]
