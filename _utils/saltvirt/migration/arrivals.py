"""What a host has promised to guests on their way to it, as the names of files there.

A promise is one empty file: whoever makes it needs nothing but the host's storage pools,
and a name is there at once or not at all.
"""

from dataclasses import dataclass

# the guest is on the host by then, and counted as what it is, or its migration has died
KEEP_S = 3600


@dataclass(frozen=True)
class Arrival:
    """A guest on its way: what it will take, and when that was promised (seconds)."""

    name: str
    memory_kib: int
    vcpus: int
    made: int

    @property
    def file(self):
        return f"{self.name}~{self.memory_kib}~{self.vcpus}~{self.made}"


def parse(file):
    """The Arrival that a file's name tells of, or None."""
    name, *numbers = file.rsplit("~", 3)
    if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        return None
    return Arrival(name, *map(int, numbers))


def stale(arrival, now):
    """Whether the promise is too old to hold."""
    return now - arrival.made > KEEP_S


def pending(files, now, present):
    """The Arrivals that count: not those of guests that are there by now.

    files: names of the files; now: seconds; present: names of the host's guests.
    """
    found = [arrival for arrival in map(parse, files) if arrival]
    return [a for a in found if not stale(a, now) and a.name not in present]
