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
from saltvirt.host.storage import bounded, identity
from saltvirt.images import header

# formats whose images have no backing file
ALONE = {
    *("raw", "iso", "dir", "fat", "luks", "vdi", "vpc", "vhdx", "bochs", "cloop", "dmg"),
    *("parallels", "ploop"),
}
_DEEPEST = 32
# of a path where nothing lies, for QEMU neither: below a file, too long, a ring of links
_NOWHERE = {errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}
# a path, and the format that is declared of it
Part = tuple[str, str | None]


@dataclass
class Chain:
    """paths: the disk's own and those of all that it is based on, by every name that was met.

    missing: a path of it that is not there. unreadable: what the system said when a file was
    opened. broken: why else it could not be read to its end.
    """

    paths: list[str] = field(default_factory=list)
    missing: str | None = None
    unreadable: str | None = None
    broken: str | None = None


def read(path: str, format: str | None = None) -> Chain:
    """The Chain of a file or block device.

    format: what is declared of it; of a raw disk nothing more is read, as a guest can write
    there what it likes. Without one the content is asked, and what cannot be told is no image.
    """
    found, todo = Chain(), list[Part]([(path, format)])
    while todo:
        path, format = todo.pop()
        if path in found.paths:
            continue
        if len(found.paths) > _DEEPEST:
            found.broken = f"{found.paths[0]} has more than {_DEEPEST} backing files"
            return found
        found.paths.append(path)
        todo += [(part, "raw") for part in identity.below(path)]
        todo += _next(found, path, format)
    return found


def below(path: str, format: str | None) -> list[Part]:
    """What a file or block device itself names or is made of, without what that is based on."""
    parts: list[Part] = [(part, "raw") for part in identity.below(path)]
    return parts + _next(Chain(), path, format)


def _next(found: Chain, path: str, format: str | None) -> list[Part]:
    """(path, format) of what one image names."""
    if format in ALONE:
        return []
    try:
        head = header.read(path, format)
    except (errors.NotFound, errors.ImageError) as exc:
        cause = exc.__cause__ if isinstance(exc.__cause__, OSError) else None
        if isinstance(exc, errors.NotFound) or (cause and cause.errno in _NOWHERE):
            if format:
                found.missing = found.missing or path
        elif cause and _is_storage(path):
            found.unreadable = found.unreadable or exc.text
        elif format:
            found.broken = found.broken or exc.text
        return []
    named: list[Part] = []
    if head.data_file:
        named += _places(found, path, head.data_file, "raw")
    if head.backing:
        named += _places(found, path, head.backing, head.backing_format)
    return named


def _is_storage(path: str) -> bool:
    """A device for something else and the like hold no image."""
    try:
        mode = bounded.stat(path).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISBLK(mode)


def _places(found: Chain, path: str, name: str, format: str | None) -> list[Part]:
    """Where a name in an image's header can lead: beside the name or beside the file of it."""
    if name.startswith("json:"):
        return _of_json(found, path, name, format)
    local = name.removeprefix("file:")
    if local.startswith("//"):
        local = "/" + local.lstrip("/")
    if ":" in local.partition("/")[0]:  # QEMU's sign of a protocol
        if format not in ALONE:
            found.broken = (
                found.broken or f"{path} has the backing file {name}, which cannot be read here"
            )
        return [(local[local.index("/") :], "raw")] if "/" in local else []
    folders = dict.fromkeys([os.path.dirname(path), os.path.dirname(identity.real(path))])
    places = list(dict.fromkeys(os.path.join(folder, local) for folder in folders))
    there = [place for place in places if _may_be_there(place)]
    return [(place, format) for place in there or places[:1]]


def _may_be_there(path: str) -> bool:
    try:
        return bounded.lexists(path)
    except bounded.Silent:
        return True


def _of_json(found: Chain, path: str, name: str, format: str | None) -> list[Part]:
    """QEMU's other way to name a file."""
    try:
        files = list(_filenames(json.loads(name.removeprefix("json:"))))
    except (ValueError, RecursionError):  # no JSON, or deeper than anything that QEMU reads
        files = []
    if not files:
        found.broken = (
            found.broken or f"{path} has the backing file {name[:60]}, which cannot be read here"
        )
    return [place for file in files for place in _places(found, path, file, format)]


def _filenames(described: Any) -> Iterator[str]:
    if isinstance(described, dict):
        for key, value in described.items():
            if isinstance(value, str) and key.rpartition(".")[2] == "filename":
                yield value
            else:
                yield from _filenames(value)
