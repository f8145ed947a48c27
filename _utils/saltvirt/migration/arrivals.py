"""What a host has promised to guests on their way to it, as the names of files there.

A promise is one small file: whoever makes it needs nothing but the host's storage pools,
and a name is there at once or not at all. It is renewed while its migration lives; its age is
told by the host that keeps it.
"""

from dataclasses import dataclass

# not renewed for so long, its migration has died
KEEP_S = 3600
RENEW_S = 300


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


def stale(age_s):
    """Whether a promise was not renewed for so long that it does not hold."""
    return age_s > KEEP_S


def pending(ages, present):
    """The Arrivals that count: not those of guests that are there by now.

    ages: name of the file to seconds since it was made or renewed, by the clock of the host that
    has it; present: names of the host's guests.
    """
    found = [parse(file) for file, age_s in sorted(ages.items()) if not stale(age_s)]
    return [arrival for arrival in found if arrival and arrival.name not in present]
