"""Inspect an image, and decide whether it may be used."""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltvirt import errors, units
from saltvirt.images import confined, header

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_MAX_CHAIN = 16
_CHECK_TIMEOUT_S = 3600
_CHECK_MEMORY = 4 * 1024**3  # it counts the clusters
_MAX_SNAPSHOTS = 1000  # QEMU reads all of them each time
_REFUSED = ("qed", "qcow")
# results of qemu-img for files that had not changed for this time, and for how long a file counts
# as unused
_UNCHANGED_S, _UNUSED_S = 2, 5
_info_cache: dict[tuple[str, str], _CachedInfo] = {}


@dataclass(frozen=True)
class ImageInfo:
    """A disk image that was opened and accepted.

    ``allocated_bytes``: allocated on the disk; ``backing``: absolute path of its backing file;
    ``backing_format``: that file's format. ``files``: names of the file itself and of all its
    backing files.
    """

    path: str
    format: str
    virtual_size_bytes: int
    allocated_bytes: int
    backing: str | None = None
    backing_format: str | None = None
    snapshots: int = 0
    bitmaps: bool = False
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class _CachedInfo:
    """The cached result for a file. identity: from _identity. unused_s: when no process was writing
    to it, by the monotonic clock."""

    identity: tuple[int, ...]
    info: dict[str, Any]
    unused_s: float | None

    def is_valid(self, identity: tuple[int, ...] | None, unused: bool) -> bool:
        """Whether the file need not be opened again."""
        unused_since_s = self.unused_s
        is_still_unused = (
            unused_since_s is not None and time.monotonic() - unused_since_s < _UNUSED_S
        )
        return self.identity == identity and (is_still_unused or not unused)


def _inside(name: str, image: str, folders: Iterable[str]) -> str:
    """The absolute path of a file that an image refers to. Raises ImageError outside the
    folders."""
    path = name.removeprefix("file:")
    if ":" in path.split("/", 1)[0] or path.startswith("//"):  # QEMU's sign of a protocol
        raise errors.ImageError(f"{image} refers to {name[:80]!r}, which is not a file: refused")
    named = os.path.normpath(os.path.join(os.path.dirname(image), path))
    try:
        real = os.path.realpath(named)
    except OSError as exc:
        raise errors.ImageError(
            f"{image} refers to {path}, which cannot be accessed: {exc.strerror}"
        ) from exc
    for folder in folders:
        root = os.path.realpath(folder)
        if os.path.commonpath([root, real]) == root:
            return named
    raise errors.ImageError(
        f"{image} refers to {path}, outside {' and '.join(map(str, folders))}: refused"
    )


def _check(path: str, head: header.Header, folders: Collection[str], depth: int) -> list[str]:
    """Refuse images that must not be opened, and return the absolute paths of the backing files."""
    if head.format in _REFUSED:
        raise errors.ImageError(f"{path} is {head.format}: convert it to qcow2 first")
    if head.encrypted:
        raise errors.ImageError(f"{path} is encrypted and cannot be seeded")
    if head.corrupt:
        raise errors.ImageError(f"{path} is marked corrupt: check it with qemu-img check")
    if head.snapshots > _MAX_SNAPSHOTS:
        raise errors.ImageError(
            f"{path} has {units.pluralize(head.snapshots, 'snapshot')}: convert it first"
        )
    if head.data_file:
        _inside(head.data_file, path, folders)
        raise errors.ImageError(
            f"{path} keeps its data in another file, {head.data_file}: convert it first"
        )
    if not head.backing:
        return []
    backing = _inside(head.backing, path, folders)
    if not head.backing_format:
        raise errors.ImageError(
            f"{path} does not declare the format of its backing file {head.backing}: "
            "set it with qemu-img rebase -u -F"
        )
    if depth >= _MAX_CHAIN:
        raise errors.ImageError(f"{path} has more than {_MAX_CHAIN} backing files")
    below = header.read(backing, head.backing_format)
    return [backing, *_check(backing, below, folders, depth + 1)]


def inspect(
    path: str,
    format: str | None = None,
    folders: Collection[str] | None = None,
    unused: bool = False,
) -> ImageInfo:
    """The ImageInfo of the file or block device at ``path``.

    format: the declared format (``raw``, ``qcow2``, …). Without it the content decides, which a
    guest may have written to its raw disk; the image must then have no backing file. folders:
    allowed for backing files; default: the image's own folder. unused: refuse an image that a
    running guest writes to.

    Raises NotFound if the file does not exist, ImageError if it is no disk image, is damaged, or
    refers to files outside the folders.
    """
    path = os.path.abspath(path)
    folders = folders or [os.path.dirname(os.path.realpath(path))]
    head = header.read(path, format)
    below = _check(path, head, folders, 0)
    if below and not format:
        raise errors.ImageError(
            f"{path} names the backing file {head.backing}: a guest could have written "
            "that to a raw disk. If the image is yours, merge it with qemu-img convert"
        )
    info = _qemu_info(path, head.format, unused)
    return ImageInfo(
        path=path,
        format=head.format,
        virtual_size_bytes=info["virtual-size"],
        allocated_bytes=info.get("actual-size", 0),
        backing=below[0] if below else None,
        backing_format=head.backing_format,
        snapshots=head.snapshots,
        bitmaps=head.bitmaps,
        files=(path, *below),
    )


def _qemu_info(path: str, format: str, unused: bool) -> dict[str, Any]:
    """The output of ``qemu-img info``, cached for guests that are created from the same image. If a
    guest starts to write to the image meanwhile, QEMU's own locks prevent that, or the start of the
    others."""
    before, now_s = _identity(path), time.monotonic()
    cached = _info_cache.get((path, format))
    if cached is not None and cached.is_valid(before, unused):
        return cached.info
    share = [] if unused else ["-U"]
    argv = ["qemu-img", "info", "--output=json", *share, "-f", format, path]
    info: dict[str, Any] = json.loads(
        confined.run(argv, f"open image {path}", errors.ImageError, reads=[path])
    )
    if before is not None and before == _identity(path):
        _info_cache[path, format] = _CachedInfo(before, info, now_s if unused else None)
    return info


def _identity(path: str) -> tuple[int, ...] | None:
    """Values that change when a file changes; None for a device, and for a file that was changed
    just now: its timestamps could be equal after a further change."""
    at_s, status = time.time(), os.stat(path)
    if not stat.S_ISREG(status.st_mode) or not 0 < status.st_ctime < at_s - _UNCHANGED_S:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def check(path: str, format: str | None, files: Collection[str] = ()) -> None:
    """Check a qcow2's tables. Raises ImageError if they are damaged or the file is truncated: QEMU
    reads zeros beyond its end.

    files: names of all its backing files.
    """
    if format != "qcow2":
        return
    leaks_only = 3
    confined.run(
        ["qemu-img", "check", "-q", "-U", "-f", "qcow2", path],
        f"use image {path}",
        errors.ImageError,
        reads={path, *files},
        limits=confined.Limits(_CHECK_TIMEOUT_S, _CHECK_MEMORY),
        ok_codes=(0, leaks_only),
    )
