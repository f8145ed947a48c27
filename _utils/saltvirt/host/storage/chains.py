"""What a disk is based on, down to the last file: to find what is needed, never to open it."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors
from saltvirt.host.storage import bounded_io, identity
from saltvirt.images import header

# formats whose images have no backing file
STANDALONE_FORMATS = {
    *("raw", "iso", "dir", "fat", "luks", "vdi", "vpc", "vhdx", "bochs", "cloop", "dmg"),
    *("parallels", "ploop"),
}
_MAX_DEPTH = 32
# of a path where nothing lies, for QEMU neither: below a file, too long, a ring of links
_ABSENT_ERRNOS = {errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}
# a path, and the format that is declared of it
ImageRef = tuple[str, str | None]


@dataclass
class ChainScan:
    """paths: the disk's own and those of all that it is based on, by every name that was met.

    missing: a path of it that is not there. unreadable: what the system said when a file was
    opened. broken: why else it could not be read to its end.
    """

    paths: list[str] = field(default_factory=list)
    missing_path: str | None = None
    unreadable: str | None = None
    broken: str | None = None


def read(path: str, format: str | None = None) -> ChainScan:
    """The Chain of a file or block device.

    format: what is declared of it; of a raw disk nothing more is read, as a guest can write
    there what it likes. Without one the content is asked, and what cannot be told is no image.
    """
    scan, todo = ChainScan(), list[ImageRef]([(path, format)])
    while todo:
        path, format = todo.pop()
        if path in scan.paths:
            continue
        if len(scan.paths) > _MAX_DEPTH:
            scan.broken = f"{scan.paths[0]} has more than {_MAX_DEPTH} backing files"
            return scan
        scan.paths.append(path)
        todo += [(part, "raw") for part in identity.underlying_paths(path)]
        todo += _references(scan, path, format)
    return scan


def direct_references(path: str, format: str | None) -> list[ImageRef]:
    """What a file or block device itself names or is made of, without what that is based on."""
    parts: list[ImageRef] = [(part, "raw") for part in identity.underlying_paths(path)]
    return parts + _references(ChainScan(), path, format)


def _references(scan: ChainScan, path: str, format: str | None) -> list[ImageRef]:
    """(path, format) of what one image names."""
    if format in STANDALONE_FORMATS:
        return []
    try:
        head = header.read(path, format)
    except (errors.NotFound, errors.ImageError) as exc:
        cause = exc.__cause__ if isinstance(exc.__cause__, OSError) else None
        if isinstance(exc, errors.NotFound) or (cause and cause.errno in _ABSENT_ERRNOS):
            if format:
                scan.missing_path = scan.missing_path or path
        elif cause and _is_storage(path):
            scan.unreadable = scan.unreadable or exc.text
        elif format:
            scan.broken = scan.broken or exc.text
        return []
    references: list[ImageRef] = []
    if head.data_file:
        references += _candidates(scan, path, head.data_file, "raw")
    if head.backing:
        references += _candidates(scan, path, head.backing, head.backing_format)
    return references


def _is_storage(path: str) -> bool:
    """A device for something else and the like hold no image."""
    try:
        mode = bounded_io.stat(path).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISBLK(mode)


def _candidates(scan: ChainScan, path: str, name: str, format: str | None) -> list[ImageRef]:
    """Where a name in an image's header can lead: beside the name or beside the file of it."""
    if name.startswith("json:"):
        return _from_json(scan, path, name, format)
    local = name.removeprefix("file:")
    if local.startswith("//"):
        local = "/" + local.lstrip("/")
    if ":" in local.partition("/")[0]:  # QEMU's sign of a protocol
        if format not in STANDALONE_FORMATS:
            scan.broken = (
                scan.broken or f"{path} has the backing file {name}, which cannot be read here"
            )
        return [(local[local.index("/") :], "raw")] if "/" in local else []
    folders = dict.fromkeys([os.path.dirname(path), os.path.dirname(identity.real(path))])
    candidates = list(dict.fromkeys(os.path.join(folder, local) for folder in folders))
    existing = [candidate for candidate in candidates if _may_exist(candidate)]
    return [(candidate, format) for candidate in existing or candidates[:1]]


def _may_exist(path: str) -> bool:
    try:
        return bounded_io.lexists(path)
    except bounded_io.StorageTimeout:
        return True


def _from_json(scan: ChainScan, path: str, name: str, format: str | None) -> list[ImageRef]:
    """QEMU's other way to name a file."""
    try:
        files = list(_filenames(json.loads(name.removeprefix("json:"))))
    except (ValueError, RecursionError):  # no JSON, or deeper than anything that QEMU reads
        files = []
    if not files:
        scan.broken = (
            scan.broken or f"{path} has the backing file {name[:60]}, which cannot be read here"
        )
    return [reference for file in files for reference in _candidates(scan, path, file, format)]


def _filenames(described: Any) -> Iterator[str]:
    if isinstance(described, dict):
        for key, value in described.items():
            if isinstance(value, str) and key.rpartition(".")[2] == "filename":
                yield value
            else:
                yield from _filenames(value)
