"""Digests of the data of a disk, one block per line: ``OFFSET LENGTH SHA256``.

A block is data as the guest would read it; ``zero`` instead of a digest stands for zeros. For
encrypted disks the digest is HMAC-SHA-256. The blocks of a full backup cover the whole disk, those
of an increment cover what changed. Blocks are sorted and do not overlap.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from saltvirt.errors import BadAnswer
from saltvirt.units import short_repr

# a reader has one block in memory; zeros are not read into memory
MAX_BYTES = 16 * 1024**2
MAX_LINE_BYTES = 128
ZERO = "zero"
_LINE = re.compile(rb"(0|[1-9][0-9]{0,18}) ([1-9][0-9]{0,18}) ([0-9a-f]{64}|zero)\n")


@dataclass(frozen=True)
class ChecksumBlock:
    """length_bytes of a disk from offset_bytes on. sha256: the digest, or ZERO."""

    offset_bytes: int
    length_bytes: int
    sha256: str

    @property
    def end_bytes(self) -> int:
        """Offset of the first byte behind the block."""
        return self.offset_bytes + self.length_bytes

    @property
    def line(self) -> bytes:
        """The line of the file for this block."""
        return f"{self.offset_bytes} {self.length_bytes} {self.sha256}\n".encode("ascii")

    def matches(self, data: bytes, key: bytes | None = None) -> bool:
        """Whether the block has this content. key: of the digests."""
        if len(data) != self.length_bytes:
            return False
        if self.sha256 == ZERO:
            return not any(data)
        return _digest(data, key) == self.sha256


def compute(offset_bytes: int, data: bytes, key: bytes | None = None) -> ChecksumBlock:
    """Return the block of data that was read, up to MAX_BYTES.

    key: of the digests of an encrypted disk, because plain digests would allow guessing the
    content.
    """
    return ChecksumBlock(offset_bytes, len(data), _digest(data, key))


def _digest(data: bytes, key: bytes | None) -> str:
    if key is None:
        return hashlib.sha256(data).hexdigest()
    return hmac.new(key, data, hashlib.sha256).hexdigest()


def zeros(offset_bytes: int, length_bytes: int) -> ChecksumBlock:
    """Return a block of zeros, which may have any length."""
    return ChecksumBlock(offset_bytes, length_bytes, ZERO)


def read(
    lines: Iterable[bytes], size_bytes: int, full: bool, label: str
) -> Iterator[ChecksumBlock]:
    """Parse the blocks in the lines of a file.

    size_bytes: of the disk. full: the blocks have to cover the whole disk. label: for messages.
    Raises BadAnswer, possibly after some blocks; discard those in this case.
    """
    end = 0
    for line in lines:
        match = _LINE.fullmatch(line)
        if not match:
            raise BadAnswer(
                f"checksum list of {label}: invalid line {short_repr(line[:MAX_LINE_BYTES])}"
            )
        block = ChecksumBlock(int(match[1]), int(match[2]), match[3].decode("ascii"))
        _check_order(block, end, full, label)
        end = block.end_bytes
        if end > size_bytes:
            raise BadAnswer(
                f"checksum list of {label}: the block at {block.offset_bytes} exceeds the disk"
            )
        yield block
    if full and end != size_bytes:
        raise BadAnswer(f"checksum list of {label}: no entry at offset {end} of {size_bytes} bytes")


def _check_order(block: ChecksumBlock, end: int, full: bool, label: str) -> None:
    if block.offset_bytes < end:
        raise BadAnswer(
            f"checksum list of {label}: the block at {block.offset_bytes} overlaps the previous one"
        )
    if full and block.offset_bytes > end:
        raise BadAnswer(f"checksum list of {label}: no entry from {end} to {block.offset_bytes}")
    if block.length_bytes > MAX_BYTES and block.sha256 != ZERO:
        raise BadAnswer(f"checksum list of {label}: the block at {block.offset_bytes} is too long")
