"""The digests of what was read of a disk, piece by piece: ``OFFSET LENGTH SHA256`` a line.

A piece is what the guest would read there; ``zero`` in the digest's place says that it is nothing
but zeros. Of a disk that is encrypted the digest is HMAC-SHA-256. The pieces of a disk that was
taken whole are all of it; those of an increment are what had changed. They stand in order and do
not overlap.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from saltvirt.errors import BadAnswer
from saltvirt.units import short_repr

# a reader has one piece in memory; zeros are not read into it
MAX_BYTES = 16 * 1024**2
MAX_LINE_BYTES = 128
ZERO = "zero"
_LINE = re.compile(rb"(0|[1-9][0-9]{0,18}) ([1-9][0-9]{0,18}) ([0-9a-f]{64}|zero)\n")


@dataclass(frozen=True)
class ChecksumBlock:
    """length_bytes of a disk from offset_bytes on. sha256: its digest, or ZERO."""

    offset_bytes: int
    length_bytes: int
    sha256: str

    @property
    def end_bytes(self) -> int:
        """Where the next one can begin."""
        return self.offset_bytes + self.length_bytes

    @property
    def line(self) -> bytes:
        """As it stands in the file."""
        return f"{self.offset_bytes} {self.length_bytes} {self.sha256}\n".encode("ascii")

    def matches(self, data: bytes, key: bytes | None = None) -> bool:
        """Are these its bytes? key: of the digests."""
        if len(data) != self.length_bytes:
            return False
        if self.sha256 == ZERO:
            return not any(data)
        return _digest(data, key) == self.sha256


def compute(offset_bytes: int, data: bytes, key: bytes | None = None) -> ChecksumBlock:
    """The piece of bytes that were read, at most MOST_BYTES of them. key: of the digests of a disk
    that is encrypted: by a plain digest it could be tried out what is in a piece."""
    return ChecksumBlock(offset_bytes, len(data), _digest(data, key))


def _digest(data: bytes, key: bytes | None) -> str:
    if key is None:
        return hashlib.sha256(data).hexdigest()
    return hmac.new(key, data, hashlib.sha256).hexdigest()


def zeros(offset_bytes: int, length_bytes: int) -> ChecksumBlock:
    """The piece where nothing but zeros is, however long."""
    return ChecksumBlock(offset_bytes, length_bytes, ZERO)


def read(
    lines: Iterable[bytes], size_bytes: int, full: bool, label: str
) -> Iterator[ChecksumBlock]:
    """The pieces in the lines of a file.

    size_bytes: of the disk. full: they have to be all of it. label: which disk's.
    Raises BadAnswer, in the middle, too: what was read until then is good for nothing then.
    """
    end = 0
    for line in lines:
        match = _LINE.fullmatch(line)
        if not match:
            raise BadAnswer(f"{label}: {short_repr(line[:MAX_LINE_BYTES])} is no line of a piece")
        block = ChecksumBlock(int(match[1]), int(match[2]), match[3].decode("ascii"))
        _check_order(block, end, full, label)
        end = block.end_bytes
        if end > size_bytes:
            raise BadAnswer(f"{label}: the piece at {block.offset_bytes} is behind the disk's end")
        yield block
    if full and end != size_bytes:
        raise BadAnswer(f"{label}: from {end} on there is no piece of {size_bytes} bytes")


def _check_order(block: ChecksumBlock, end: int, full: bool, label: str) -> None:
    if block.offset_bytes < end:
        raise BadAnswer(f"{label}: the piece at {block.offset_bytes} overlaps the one before")
    if full and block.offset_bytes > end:
        raise BadAnswer(f"{label}: from {end} to {block.offset_bytes} there is no piece")
    if block.length_bytes > MAX_BYTES and block.sha256 != ZERO:
        raise BadAnswer(f"{label}: the piece at {block.offset_bytes} is too long")
