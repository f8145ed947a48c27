"""Backing chains of disks, followed to find all users of a file; no image is opened for its
data."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors
from saltvirt.host.storage import identity
from saltvirt.images import header
from saltvirt.system import bounded_io

# formats without backing files
STANDALONE_FORMATS = {
    *("raw", "iso", "dir", "fat", "luks", "vdi", "vpc", "vhdx", "bochs", "cloop", "dmg"),
    *("parallels", "ploop"),
}
_MAX_DEPTH = 32
# errors of a path that cannot exist: below a file, too long, a symbolic link loop
_ABSENT_ERRNOS = {errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}
# (path, declared format)
ImageRef = tuple[str, str | None]


@dataclass
class ChainScan:
    """The result of following a backing chain.

    paths: the disk and all its backing files, under every name encountered. missing_path: a path
    that does not exist. unreadable: the system error when a file was opened. broken: another reason
    why the chain could not be followed to its end.
    """

    paths: list[str] = field(default_factory=list)
    missing_path: str | None = None
    unreadable: str | None = None
    broken: str | None = None


def read(path: str, format: str | None = None) -> ChainScan:
    """Follow the backing chain of a file or block device.

    format: the declared format. A raw disk is not read any further, because a guest can write any
    header to it. Without a format the content decides; an unrecognized file is not an image.
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
    """Return what a file or block device itself refers to or consists of."""
    parts: list[ImageRef] = [(part, "raw") for part in identity.underlying_paths(path)]
    return parts + _references(ChainScan(), path, format)


def _references(scan: ChainScan, path: str, format: str | None) -> list[ImageRef]:
    """Return (path, format) of each file that one image refers to."""
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
    """Return whether the path is a file or block device; other types hold no image."""
    try:
        mode = bounded_io.stat(path).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISBLK(mode)


def _candidates(scan: ChainScan, path: str, name: str, format: str | None) -> list[ImageRef]:
    """Return the possible paths for a file name in an image header.

    A relative name may refer to the folder of the given path or of its link target.
    """
    if name.startswith("json:"):
        return _from_json(scan, path, name, format)
    local = name.removeprefix("file:")
    if local.startswith("//"):
        local = "/" + local.lstrip("/")
    if ":" in local.partition("/")[0]:  # QEMU's syntax of a protocol
        if format not in STANDALONE_FORMATS:
            scan.broken = scan.broken or (
                f"{path} has the backing file {name}, which cannot be read on this host"
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
    """Parse QEMU's ``json:`` form of a file name."""
    try:
        files = list(_filenames(json.loads(name.removeprefix("json:"))))
    except (ValueError, RecursionError):  # invalid JSON, or nested deeper than QEMU accepts
        files = []
    if not files:
        scan.broken = scan.broken or (
            f"{path} has the backing file {name[:60]}, which cannot be read on this host"
        )
    return [reference for file in files for reference in _candidates(scan, path, file, format)]


def _filenames(described: Any) -> Iterator[str]:
    if isinstance(described, dict):
        for key, value in described.items():
            if isinstance(value, str) and key.rpartition(".")[2] == "filename":
                yield value
            else:
                yield from _filenames(value)
