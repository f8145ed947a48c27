"""What was found when a backup was read back: ``verified.json``, beside its record."""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.backup.model import record
from saltvirt.errors import BadAnswer
from saltvirt.schema import Message

FILE = "verified.json"


@dataclass(frozen=True)
class Verification(Message):
    """What the last verification found.

    when: as in a record. broken: name of a disk to what is wrong with it; "" is the definition.
    disks: the names of those that were read.
    """

    when: str
    disks: tuple[str, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Was nothing wrong?"""
        return not self.broken


def parse(data: bytes, label: str) -> Verification:
    """The mark in the bytes of a file. Raises BadAnswer."""
    result = Verification.from_answer(record.load_json(data, label), label)
    try:
        record.moment(result.when)
    except ValueError:
        raise BadAnswer(f"{label}: when is no time") from None
    return result
