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
_LONGEST = 255
_MORE = "!"


@dataclass(frozen=True)
class Reservation:
    """A guest on its way: what it will take, and when that was promised (seconds).

    disks: pairs of a place (a folder of the target, or a storage pool) and the bytes that the
    guest's disks may become there. page_kib: as a facts.Guest has it.
    """

    name: str
    memory_kib: int
    vcpus: int
    made: int
    disks: tuple[tuple[str, int], ...] = ()
    page_kib: int | None = None

    @property
    def file(self) -> str:
        found = f"{self.name}~{self.memory_kib}~{self.vcpus}~{self.made}"
        if self.page_kib is not None:
            found += f"{_MORE}p{self.page_kib}"
        for number, (place, size) in enumerate(self.disks):
            room = (_LONGEST - len(found.encode())) // (len(self.disks) - number)
            found += _disk(place, size, room)
        return found


def _disk(place: str, size: int, room: int) -> str:
    """A disk's part of the name. A folder that is too long stands for itself by one above it,
    which is on the same file system most of the time."""
    text = f"{_MORE}d{size}@{quote(place, safe='')}"
    while len(text) > room and place != "/" and place.startswith("/"):
        place = place.rpartition("/")[0] or "/"
        text = f"{_MORE}d{size}@{quote(place, safe='')}"
    return text if len(text) <= room else ""


def parse(file: str) -> Reservation | None:
    """The Reservation that a file's name tells of, or None."""
    found, *more = file.split(_MORE)
    name, *numbers = found.rsplit("~", 3)
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return None
    pages = [word[1:] for word in more if word.startswith("p") and word[1:].isdecimal()]
    parts = [word[1:].partition("@") for word in more if word.startswith("d")]
    disks = tuple((unquote(place), int(size)) for size, _, place in parts if size.isdecimal())
    memory_kib, vcpus, made = map(int, numbers)
    return Reservation(name, memory_kib, vcpus, made, disks, int(pages[0]) if pages else None)


def stale(age_s: float) -> bool:
    """Whether a reservation was not renewed for so long that it does not hold."""
    return age_s > KEEP_S


def pending(ages: Mapping[str, float], present: Container[str]) -> list[Reservation]:
    """The Reservations that count: not those of guests that are there by now.

    ages: name of the file to seconds since it was made or renewed, by the clock of the host that
    has it; present: names of the host's guests.
    """
    found = [parse(file) for file, age_s in sorted(ages.items()) if not stale(age_s)]
    return [reservation for reservation in found if reservation and reservation.name not in present]
