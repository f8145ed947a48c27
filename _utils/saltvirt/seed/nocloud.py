"""The volume with cloud-init's data: a small ISO 9660 file system with the label cidata."""

from __future__ import annotations

import os
import shutil
import struct
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.images import clone
from saltvirt.system import atomic_file, paths, private_folder, tools

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAKERS = (
    ("xorriso", ["xorriso", "-as", "genisoimage"]),
    ("genisoimage", ["genisoimage"]),
    ("mkisofs", ["mkisofs"]),
    ("xorrisofs", ["xorrisofs"]),
)


def _maker() -> list[str]:
    for name, argv in _MAKERS:
        if shutil.which(name):
            return argv
    raise errors.Unsupported(
        "this host cannot create a cloud-init volume: install xorriso, genisoimage or mkisofs"
    )


def available() -> bool:
    """Whether this host can create such a volume."""
    return any(shutil.which(name) for name, _ in _MAKERS)


def write(path: str, files: Mapping[str, str]) -> None:
    """Create the volume ``path``, readable by root only.

    files: {name: text}. They contain a private key, so until the volume is complete it is in memory
    only (/run), from which a later call removes the leftovers of a killed process. Raises
    SeedFailed, Unsupported.
    """
    maker = _maker()
    with private_folder.temporary(paths.RUN, "cidata-") as folder:
        content, volume = os.path.join(folder, "content"), os.path.join(folder, "volume")
        os.mkdir(content)
        for name, text in files.items():
            with open(os.path.join(content, name), "w", encoding="utf-8") as file:
                file.write(text)
        options = ["-quiet", "-output", volume, "-volid", "cidata", "-joliet", "-rock"]
        tools.run([*maker, *options, content], f"make {path}", errors.SeedFailed)
        _publish(volume, path)


_SECTOR = 2048
_FIRST_DESCRIPTOR, _JOLIET, _LAST = 16, 2, 255  # the first sector; kinds of descriptors
MAX_BYTES = 16 * 1024**2


def read(path: str) -> dict[str, str]:
    """The files of a volume from :func:`write`: {name: text}. Raises SeedFailed."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError("the volume is too large")
        return dict(_entries(content))
    except (OSError, ValueError, struct.error) as exc:
        raise errors.SeedFailed(f"cannot read the cloud-init volume {path}: {exc}") from exc


def _entries(content: bytes) -> Iterator[tuple[str, str]]:
    """(name, text) of the records of its Joliet folder, which preserves names."""
    start, size = _extent(content, _joliet(content) + 156)
    offset, end = start, start + size
    while offset < end:
        length = content[offset]
        if not length:  # no record goes beyond its sector
            offset += _SECTOR - offset % _SECTOR
            continue
        name = content[offset + 33 : offset + 33 + content[offset + 32]]
        if not content[offset + 25] & 2 and len(name) > 1:  # no folder
            first, size = _extent(content, offset)
            yield name.decode("utf-16-be").partition(";")[0], content[first : first + size].decode()
        offset += length


def _joliet(content: bytes) -> int:
    for offset in range(_FIRST_DESCRIPTOR * _SECTOR, len(content), _SECTOR):
        if content[offset + 1 : offset + 6] != b"CD001" or content[offset] == _LAST:
            break
        if content[offset] == _JOLIET:
            return offset
    raise ValueError("the volume was not written by Salt Virt")


def _extent(content: bytes, record: int) -> tuple[int, int]:
    """(first byte, length) of the file of a folder's record."""
    sector, size = struct.unpack_from("<I4xI", content, record + 2)
    if sector * _SECTOR + size > len(content):
        raise ValueError("the volume is truncated")
    return sector * _SECTOR, size


def _publish(volume: str, path: str) -> None:
    """Replace the file of that name; processes that have the old file open can still read it."""
    with clone.part_of(path) as part:
        with open(part, "r+b") as target, open(volume, "rb") as source:
            os.fchmod(target.fileno(), 0o600)
            shutil.copyfileobj(source, target)
        atomic_file.sync(part)
        atomic_file.rename(part, path)
