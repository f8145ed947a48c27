"""What an image is, and whether it may be used."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt import errors, units
from saltvirt.images import confined, header

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_DEEPEST_CHAIN = 16
_CHECK_S = 3600
_CHECK_MEMORY = 4 * 1024**3  # it counts the clusters
_MOST_SNAPSHOTS = 1000  # QEMU reads all of them each time
_REFUSED = ("qed", "qcow")


@dataclass(frozen=True)
class ImageInfo:
    """A disk image that was opened and found good.

    ``allocated_bytes`` is what it takes on the disk, ``backing`` the absolute path of the
    image it is based on, ``backing_format`` that one's format. ``files``: the names of the file
    itself and of all that it is based on.
    """

    path: str
    format: str
    virtual_size_bytes: int
    allocated_bytes: int
    backing: str | None = None
    backing_format: str | None = None
    snapshots: int = 0
    files: tuple[str, ...] = ()


def _inside(name: str, image: str, folders: Iterable[str]) -> str:
    """The absolute path of a file that an image names; refused outside of the folders."""
    path = name.removeprefix("file:")
    if ":" in path.split("/", 1)[0] or path.startswith("//"):  # QEMU's sign of a protocol
        raise errors.ImageError(f"{image} refers to {name[:80]!r}, which is no file: refused")
    named = os.path.normpath(os.path.join(os.path.dirname(image), path))
    try:
        real = os.path.realpath(named)
    except OSError as exc:
        raise errors.ImageError(
            f"{image} refers to {path}, which cannot be looked at: {exc.strerror}"
        ) from exc
    for folder in folders:
        root = os.path.realpath(folder)
        if os.path.commonpath([root, real]) == root:
            return named
    raise errors.ImageError(
        f"{image} refers to {path}, outside of {' and '.join(map(str, folders))}: refused"
    )


def _check(path: str, found: header.Header, folders: Collection[str], depth: int) -> list[str]:
    """Refuses what must not be opened, and returns the absolute paths of what it is based on."""
    if found.format in _REFUSED:
        raise errors.ImageError(f"{path} is {found.format}: convert it to qcow2 first")
    if found.encrypted:
        raise errors.ImageError(f"{path} is encrypted: nobody can seed it")
    if found.corrupt:
        raise errors.ImageError(f"{path} is marked corrupt: run qemu-img check on it")
    if found.snapshots > _MOST_SNAPSHOTS:
        raise errors.ImageError(
            f"{path} has {units.counted(found.snapshots, 'snapshot')}: convert it first"
        )
    if found.data_file:
        _inside(found.data_file, path, folders)
        raise errors.ImageError(
            f"{path} keeps its data in another file, {found.data_file}: convert it first"
        )
    if not found.backing:
        return []
    backing = _inside(found.backing, path, folders)
    if not found.backing_format:
        raise errors.ImageError(
            f"{path} does not declare the format of its backing file {found.backing}: "
            "set it with qemu-img rebase -u -F"
        )
    if depth >= _DEEPEST_CHAIN:
        raise errors.ImageError(f"{path} has more than {_DEEPEST_CHAIN} backing files")
    below = header.read(backing, found.backing_format)
    return [backing, *_check(backing, below, folders, depth + 1)]


def inspect(
    path: str,
    format: str | None = None,
    folders: Collection[str] | None = None,
    unused: bool = False,
) -> ImageInfo:
    """The ImageInfo of the file or block device at ``path``.

    format: the declared format (``raw``, ``qcow2``, …); without it the content decides, which
    can be what a guest wrote to its raw disk: then it must have no backing file.
    folders: where the files it is based on may lie; default: its own folder.
    unused: refuse an image that a running guest writes to.

    Raises NotFound when there is no such file, ImageError when it is no disk image, damaged,
    or refers to files outside of the folders.
    """
    path = os.path.abspath(path)
    folders = folders or [os.path.dirname(os.path.realpath(path))]
    found = header.read(path, format)
    below = _check(path, found, folders, 0)
    if below and not format:
        raise errors.ImageError(
            f"{path} names the backing file {found.backing}: a guest could have written that to a "
            "raw disk. If it is yours, make it whole with qemu-img convert"
        )
    share = [] if unused else ["-U"]
    argv = ["qemu-img", "info", "--output=json", *share, "-f", found.format, path]
    out = confined.run(argv, f"open image {path}", errors.ImageError, reads=[path])
    info = json.loads(out)
    return ImageInfo(
        path=path,
        format=found.format,
        virtual_size_bytes=info["virtual-size"],
        allocated_bytes=info.get("actual-size", 0),
        backing=below[0] if below else None,
        backing_format=found.backing_format,
        snapshots=found.snapshots,
        files=(path, *below),
    )


def check(path: str, format: str | None, files: Collection[str] = ()) -> None:
    """Reads a qcow2's tables through. Raises ImageError when they are damaged or it was cut: what
    lies beyond its end is nothing but zeros to QEMU.

    files: the names of all that it is based on.
    """
    if format != "qcow2":
        return
    leaks_only = 3
    confined.run(
        ["qemu-img", "check", "-q", "-U", "-f", "qcow2", path],
        f"use image {path}",
        errors.ImageError,
        reads={path, *files},
        limits=confined.Limits(_CHECK_S, _CHECK_MEMORY),
        good=(0, leaks_only),
    )
