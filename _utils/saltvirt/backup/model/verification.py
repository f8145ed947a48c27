"""Result of the last verification of a backup: ``verified.json`` beside its record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from saltvirt.backup.model import record
from saltvirt.errors import BadAnswer
from saltvirt.schema import Message

FILE = "verified.json"


@dataclass(frozen=True)
class Verification(Message):
    """Findings of the last verification.

    verified_at: as in a record. broken_disks: disk to its problem; the definition has the name "".
    disks: names of the disks that were read.
    """

    ALIASES: ClassVar[dict[str, str]] = {"when": "verified_at", "broken": "broken_disks"}

    verified_at: str
    disks: tuple[str, ...] = ()
    broken_disks: dict[str, str] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether no problem was found."""
        return not self.broken_disks


def parse(data: bytes, label: str) -> Verification:
    """Parse the content of the file. Raises BadAnswer."""
    result = Verification.from_answer(record.load_json(data, label), label)
    try:
        record.moment(result.verified_at)
    except ValueError:
        raise BadAnswer(f"{label}: verified_at is not a valid time") from None
    return result
