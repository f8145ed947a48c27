"""The hash that an operator requires of an image: a value, or a file that lists it."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.images import storage

if TYPE_CHECKING:
    from collections.abc import Iterable

# (algorithm, hex digits)
RequiredHash = tuple[str, str]

_LENGTHS = {64: "sha256", 96: "sha384", 128: "sha512"}
_VALUE = re.compile(r"(?:(sha256|sha384|sha512)[:=])?([0-9a-fA-F]{64,128})", re.IGNORECASE)
_GNU = re.compile(r"\\?([0-9a-fA-F]{64,128}) [ *](.+)")
_BSD = re.compile(r"SHA\d+ \((.+)\) = ([0-9a-fA-F]{64,128})")
_BLOCK = 4 * 1024 * 1024


def is_value(image_hash: str) -> bool:
    """Whether it is a hash, not the address of a file that lists hashes."""
    return bool(_VALUE.fullmatch(image_hash.strip()))


def parse(image_hash: object) -> RequiredHash:
    """(algorithm, hex digits) of ``sha256:…``, ``sha512=…`` or of the digits alone.

    Raises InvalidInput for anything else, including SHA-1 and MD5, which are insecure.
    """
    match = _VALUE.fullmatch(str(image_hash).strip())
    algorithm = _LENGTHS.get(len(match.group(2))) if match else None
    if not match or not algorithm or (match.group(1) or algorithm).lower() != algorithm:
        raise errors.InvalidInput(
            f"image_hash {str(image_hash)[:80]!r} is neither a sha256, sha384 or sha512 "
            "hash nor the address of a file that lists such hashes"
        )
    return algorithm, match.group(2).lower()


def from_list(text: str, name: str, list_name: str) -> RequiredHash:
    """(algorithm, hex digits) of the file ``name`` in a SHA256SUMS file.

    Formats: GNU's ``digits name``, BSD's ``SHA256 (name) = digits``, and digits alone. Raises
    ImageError if the list has no line for the file.
    """
    digests = {}
    for line in text.splitlines():
        if match := _GNU.fullmatch(line.strip()):
            digests[match.group(2).rsplit("/", 1)[-1]] = match.group(1)
        elif match := _BSD.fullmatch(line.strip()):
            digests[match.group(1).rsplit("/", 1)[-1]] = match.group(2)
        elif _VALUE.fullmatch(line.strip()):
            digests[""] = line.strip()
    digits = digests.get(name) or (digests.get("") if len(digests) == 1 else None)
    if not digits:
        raise errors.ImageError(f"{list_name} contains no hash of {name}")
    return parse(digits)


def hash_file(path: str, algorithms: Iterable[str]) -> dict[str, str]:
    """{algorithm: hex digits} of a file, read once."""
    sums = {name: hashlib.new(name) for name in algorithms}
    with storage.open_for_reading(path) as file:
        while block := file.read(_BLOCK):
            for hasher in sums.values():
                hasher.update(block)
    return {name: hasher.hexdigest() for name, hasher in sums.items()}
