"""What a host has promised to guests on their way to it, as the names of files there.

A reservation is one small file: whoever makes it needs nothing but the host's storage pools,
and a name is there at once or not at all. It is renewed while its migration lives; its age is
told by the host that keeps it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

# not renewed for so long, its migration has died
KEEP_S = 3600
RENEW_S = 300


# of a file's name; the file systems that Linux has take 255 bytes
_MAX_NAME_BYTES = 255
_SEPARATOR = "!"


@dataclass(frozen=True)
class Reservation:
    """A guest on its way: what it will take, and when that was promised (seconds).

    disks: pairs of a place (a folder of the target, or a storage pool) and the bytes that the
    guest's disks may become there. page_kib: as a facts.Guest has it.
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
    """A disk's part of the name. A folder that is too long stands for itself by one above it,
    which is on the same file system most of the time."""
    text = f"{_SEPARATOR}d{size}@{quote(folder, safe='')}"
    while len(text) > max_bytes and folder != "/" and folder.startswith("/"):
        folder = folder.rpartition("/")[0] or "/"
        text = f"{_SEPARATOR}d{size}@{quote(folder, safe='')}"
    return text if len(text) <= max_bytes else ""


def parse(file: str) -> Reservation | None:
    """The Reservation that a file's name tells of, or None."""
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
    """Whether a reservation was not renewed for so long that it does not hold."""
    return age_s > KEEP_S


def pending(ages: Mapping[str, float], present: Container[str]) -> list[Reservation]:
    """The Reservations that count: not those of guests that are there by now.

    ages: name of the file to seconds since it was made or renewed, by the clock of the host that
    has it; present: names of the host's guests.
    """
    reservations = [parse(file) for file, age_s in sorted(ages.items()) if not stale(age_s)]
    return [
        reservation
        for reservation in reservations
        if reservation and reservation.name not in present
    ]
