"""Find the file systems of a disk that is available as a file or a block device."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.system import tools

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

FILE_SYSTEMS = ("ext2", "ext3", "ext4", "xfs", "btrfs")
_LVM = "LVM2_member"
_SECTOR = 512
_AREA_MAGIC = b" LVM2 x[5A%r0N*>"
_TIMEOUT_S = 60
_TEXT_MAX, _MAX_VOLUMES = 1024 * 1024, 256
_MAX_PARTITIONS = 256  # as many as Linux shows of a disk
_AMBIVALENT = 8  # blkid's code where signatures contradict each other
_METADATA_MAX = 16 * 1024 * 1024


@dataclass(frozen=True)
class Partition:
    """Offset and size in bytes of a file system on the disk, and its type."""

    offset: int
    size: int
    kind: str


def _run_tool(argv: list[str], ok_codes: Container[int]) -> bytes:
    action = "read the partitions"
    return tools.run(argv, action, errors.SeedFailed, ok_codes=ok_codes, timeout_s=_TIMEOUT_S)


def _blkid(path: str, offset: int, size: int) -> dict[str, str]:
    """blkid's values for a range of the disk; {} if it recognizes nothing."""
    argv = ["blkid", "-p", "-o", "export", "-O", str(offset), "-S", str(size), path]
    out = _run_tool(argv, (0, 2, _AMBIVALENT)).decode("utf-8", "replace")
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def _table(path: str, size: int) -> list[tuple[int, int]]:
    """The (offset, size) of each partition; the whole disk if there is no table."""
    argv = ["sfdisk", "--json", path]
    out = _run_tool(argv, (0, 1))
    if not out:
        return [(0, size)]
    try:
        table = json.loads(out)["partitiontable"]
        sector = table.get("sectorsize", _SECTOR)
        parts = table.get("partitions", [])
        extents = [(part["start"] * sector, part["size"] * sector) for part in parts]
    except (ValueError, KeyError, TypeError) as exc:
        raise errors.SeedFailed("the partition table cannot be read") from exc
    if len(extents) > _MAX_PARTITIONS:
        raise errors.SeedFailed(
            f"the disk has {len(extents)} partitions, more than {_MAX_PARTITIONS}"
        )
    return [(start, length) for start, length in extents if 0 < length <= size - start]


def _section(text: str, name: str) -> str:
    """The text inside ``name { … }`` in LVM's metadata."""
    start = re.search(rf"(?m)^[ \t]*{re.escape(name)} \{{$", text)
    if not start:
        return ""
    depth, position = 1, start.end()
    while depth and position < len(text):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        position += 1
    return text[start.end() : position - 1]


def _number(text: str, name: str) -> int | None:
    match = re.search(rf"(?m)^[ \t]*{name} = (\d{{1,15}})\b", text)
    return int(match.group(1)) if match else None


def _metadata(head: bytes) -> str:
    """The text of LVM's current metadata from the head of a physical volume.

    A label in one of the first sectors points to the volume's header, that to the metadata area,
    and the area's header to the newest text in a ring.
    """
    label = head.find(b"LABELONE", 0, 4 * _SECTOR)
    lists = label + struct.unpack_from("<I", head, label + 20)[0] + 40
    while struct.unpack_from("<Q", head, lists)[0]:  # the data areas
        lists += 16
    area = struct.unpack_from("<Q", head, lists + 16)[0]
    if not area or head[area + 4 : area + 20] != _AREA_MAGIC:
        raise errors.SeedFailed("the LVM metadata cannot be read: use the backend libguestfs")
    ring = struct.unpack_from("<Q", head, area + 32)[0]
    offset, length = struct.unpack_from("<QQ", head, area + 40)
    text = head[area + offset : area + min(offset + length, ring)]
    if length > _TEXT_MAX:
        raise errors.SeedFailed("the LVM metadata is too large: use the backend libguestfs")
    if len(text) < length:  # it goes on behind the ring's header
        text += head[area + _SECTOR : area + _SECTOR + length - len(text)]
    return text.rstrip(b"\0").decode("utf-8", "replace")


def linear_volumes(text: str) -> Iterator[tuple[int, int]]:
    """(offset, size) in bytes of the logical volumes that are contiguous on the disk.

    text: LVM's metadata of a volume group. Other volumes need libguestfs.
    """
    extent = _number(text, "extent_size")
    physical = _section(text, "physical_volumes")
    start = _number(physical, "pe_start")
    if physical.count("pe_start") != 1 or not extent or start is None:
        return
    logical = _section(text, "logical_volumes")
    for name in re.findall(r"(?m)^([A-Za-z0-9+_.-]+) \{$", logical.replace("\t", ""))[
        :_MAX_VOLUMES
    ]:
        volume = _section(logical, name)
        stripes = re.findall(r'stripes = \[\s*"pv0", (\d{1,15})\s*\]', volume)
        if _number(volume, "segment_count") == 1 and 'type = "striped"' in volume and stripes:
            extents = _number(_section(volume, "segment1"), "extent_count") or 0
            first = start + int(stripes[0]) * extent
            yield first * _SECTOR, extents * extent * _SECTOR


def _volumes(path: str, offset: int) -> Iterator[tuple[int, int]]:
    with open(path, "rb") as file:
        file.seek(offset)
        head = file.read(_METADATA_MAX)
    try:
        text = _metadata(head)
    except struct.error:  # it leads out of its own area
        raise errors.SeedFailed("the LVM metadata is damaged") from None
    yield from ((offset + start, size) for start, size in linear_volumes(text))


def find(path: str, size: int) -> tuple[list[Partition], list[str]]:
    """(the Partitions on the disk that could contain a system, the other types on it).

    path: a file or block device with the raw disk. size: in bytes.
    """
    partitions: list[Partition] = []
    other_kinds: set[str | None] = set()

    def probe(offset: int, length: int) -> str | None:
        kind = _blkid(path, offset, length).get("TYPE")
        if kind in FILE_SYSTEMS:
            partitions.append(Partition(offset, length, kind))
        return kind

    for offset, length in _table(path, size):
        kind = probe(offset, length)
        if kind == _LVM:
            for start, volume_size in _volumes(path, offset):
                if 0 < volume_size <= size - start:
                    other_kinds.add(probe(start, volume_size))
        else:
            other_kinds.add(kind)
    return partitions, sorted(
        {kind for kind in other_kinds if kind is not None} - set(FILE_SYSTEMS)
    )
