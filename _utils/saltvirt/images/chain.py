"""What an image is based on, by declared formats and the images' own headers."""

from __future__ import annotations

import os
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.host.storage import bounded
from saltvirt.images import header

_DEEPEST = 32  # backing files


@dataclass(frozen=True)
class Link:
    """One file of a chain. path: without symbolic links. format: None where none is declared.
    name: the absolute path by which QEMU opens it."""

    path: str
    format: str | None
    name: str


@dataclass(frozen=True)
class Chain:
    """links: the file itself first. aside: real paths of files in which some of them keep
    their data. broken: why it could not be read to its end, or None."""

    links: tuple[Link, ...]
    aside: tuple[str, ...] = ()
    broken: str | None = None


def read(path: str, format: str | None = None) -> Chain:
    """The Chain of a file or block device; opens nothing else.

    format: what is declared of it. What is declared raw ends the chain: whatever a guest wrote
    there is data. Without one its content decides: right to find what might be needed, wrong
    to find what may be deleted or read.
    """
    found: list[Link] = []
    aside: list[str] = []
    broken: str | None = None
    at: str | None = path
    while at:
        at = os.path.abspath(at)
        here = bounded.real(at)
        if here in (link.path for link in found):
            break
        if len(found) > _DEEPEST:
            broken = f"{found[0].path} has more than {_DEEPEST} backing files"
            break
        found.append(Link(here, format, at))
        try:
            head = header.read(here, format)
        except errors.NotFound as exc:
            broken = str(exc)
            break
        except errors.ImageError as exc:
            broken = str(exc) if format else None
            break
        if data := _local(at, head.data_file):
            aside.append(bounded.real(data))
        at, format = _local(at, head.backing), head.backing_format
    return Chain(tuple(found), tuple(aside), broken)


def names(path: str, format: str | None = None) -> list[str]:
    """The names of a file and of all that it is based on, as QEMU opens them."""
    return [link.name for link in read(path, format).links]


def _local(path: str, name: str | None) -> str | None:
    """The path of a file that the image at ``path`` names; None for none, or for no file.

    QEMU looks for a relative name beside the name by which it opened the image.
    """
    if not name:
        return None
    local = name.removeprefix("file:")
    if ":" in local.split("/", 1)[0]:  # QEMU's sign of a protocol
        return None
    return os.path.join(os.path.dirname(path), local)
