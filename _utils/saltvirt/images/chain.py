"""What an image stands on, by declared formats and the images' own headers."""

import os
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.host.storage import bounded
from saltvirt.images import header

_DEEPEST = 32


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

    links: tuple
    aside: tuple = ()
    broken: str | None = None


def read(path, format=None):
    """The Chain of a file or block device; opens nothing else.

    format: what is declared of it. What is declared raw ends the chain: whatever a guest wrote
    there is data. Without one its content decides: right to find what might be needed, wrong
    to find what may be deleted or read.
    """
    found, aside, broken = [], [], None
    while path:
        path = os.path.abspath(path)
        here = bounded.real(path)
        if here in (link.path for link in found):
            break
        found.append(Link(here, format, path))
        if len(found) == _DEEPEST:
            broken = f"{found[0].path} stands on more than {_DEEPEST} files"
            break
        try:
            head = header.read(here, format)
        except errors.NotFound as exc:
            broken = str(exc)
            break
        except errors.ImageError as exc:
            broken = str(exc) if format else None
            break
        if data := _local(path, head.data_file):
            aside.append(bounded.real(data))
        path, format = _local(path, head.backing), head.backing_format
    return Chain(tuple(found), tuple(aside), broken)


def names(path, format=None):
    """The names of a file and of all that it stands on, as QEMU opens them."""
    return [link.name for link in read(path, format).links]


def _local(path, name):
    """The path of a file that the image at ``path`` names; None for none, or for no file.

    QEMU looks for a relative name beside the name by which it opened the image.
    """
    if not name:
        return None
    local = name.removeprefix("file:")
    if ":" in local.split("/", 1)[0]:  # QEMU's sign of a protocol
        return None
    return os.path.join(os.path.dirname(path), local)
