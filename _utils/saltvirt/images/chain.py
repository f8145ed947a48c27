"""The backing chain of an image, according to declared formats and the images' own headers."""

from __future__ import annotations

import os
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.images import header
from saltvirt.system import bounded_io

_MAX_DEPTH = 32  # backing files


@dataclass(frozen=True)
class Link:
    """One file of a chain. path: without symbolic links. format: None if none is declared. name:
    the absolute path by which QEMU opens it."""

    path: str
    format: str | None
    name: str


@dataclass(frozen=True)
class ImageChain:
    """links: the file itself first. data_files: real paths of external data files. broken: why the
    chain could not be read to its end, or None."""

    links: tuple[Link, ...]
    data_files: tuple[str, ...] = ()
    broken: str | None = None


def read(path: str, format: str | None = None) -> ImageChain:
    """The ImageChain of a file or block device; opens no other files.

    format: the declared format. A file that is declared raw ends the chain, because its content is
    a guest's data. Without a declared format the content decides: suitable to find what may be
    needed, but not to find what may be deleted or read.
    """
    links: list[Link] = []
    data_files: list[str] = []
    broken: str | None = None
    current: str | None = path
    while current:
        current = os.path.abspath(current)
        real_path = bounded_io.real(current)
        if real_path in (link.path for link in links):
            break
        if len(links) > _MAX_DEPTH:
            broken = f"{links[0].path} has more than {_MAX_DEPTH} backing files"
            break
        links.append(Link(real_path, format, current))
        try:
            head = header.read(real_path, format)
        except errors.NotFound as exc:
            broken = str(exc)
            break
        except errors.ImageError as exc:
            broken = str(exc) if format else None
            break
        if data := _local(current, head.data_file):
            data_files.append(bounded_io.real(data))
        current, format = _local(current, head.backing), head.backing_format
    return ImageChain(tuple(links), tuple(data_files), broken)


def names(path: str, format: str | None = None) -> list[str]:
    """The names of a file and of its backing files, as QEMU opens them."""
    return [link.name for link in read(path, format).links]


def _local(path: str, name: str | None) -> str | None:
    """The path of a file that the image at ``path`` refers to; None if it refers to none, or to no
    file.

    QEMU resolves a relative name beside the name by which it opened the image.
    """
    if not name:
        return None
    local = name.removeprefix("file:")
    if ":" in local.split("/", 1)[0]:  # QEMU's sign of a protocol
        return None
    return os.path.join(os.path.dirname(path), local)
