"""What a definition names: every file, device, folder and volume that stands in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt.host.storage import files
from saltvirt.xml.domain.metadata import OwnDisk

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# a path in a QEMU option, where a comma is doubled; in JSON
_OPTION_PATH = re.compile(r"(?<=[=:])/(?:[^,]|,,)+")
_QUOTED = re.compile(r'"(?:file:)?(/[^"]+)"')
# what has a source of data, and says of which format it is
_STORAGE = {"disk", "backingStore", "mirror", "dataStore", "filesystem"}

# libvirt reads no chain that is longer
_MAX_DEPTH = 200


@dataclass(frozen=True)
class StorageReference:
    """path: of this host; or volume: (pool, name); or server: the name of what a server has.

    format: the declared one, None where none is. closed: what it is based on is all in the
    definition. folder: all that is below it is meant. loose: a path that merely stands in it,
    which says nothing of what is in the file.
    """

    path: str | None = None
    volume: tuple[str, str] | None = None
    server: str | None = None
    format: str | None = None
    chain_complete: bool = False
    folder: bool = False
    incidental: bool = False


def references_of(root: Element) -> Iterator[StorageReference]:
    """The Names in the parsed XML of a domain, a snapshot or a checkpoint.

    Every absolute path in it counts, wherever it stands: firmware, kernels, saved memory. Of
    the metadata only the disks of our record do.
    """
    for node in _elements(root):
        for text in (node.text or "", *node.attrib.values()):
            if text.strip().startswith("/"):
                yield StorageReference(path=text.strip(), format="raw", incidental=True)
        if node.tag.endswith("}arg"):
            for path in _of_argument(node.get("value", "")):
                yield StorageReference(path=path, incidental=True)
        if node.tag == OwnDisk.TAG:
            yield from _of_record(node)
        source = node.find("source")
        if node.tag in _STORAGE and source is not None:
            yield from _of_source(source, files.format_of(node), _closed(node))
        if node.tag == "nvram" and (variables_path := files.variables(node) or "").startswith("/"):
            yield StorageReference(path=variables_path, format=files.format_of(node))


def _of_argument(text: str) -> list[str]:
    """The paths in an argument of QEMU's own (``file=/a,if=virtio``, or JSON)."""
    if text.lstrip().startswith("{"):
        return _QUOTED.findall(text)
    return [path.replace(",,", ",") for path in _OPTION_PATH.findall(text)]


def _elements(root: Element) -> Iterator[Element]:
    """All of it; of the metadata our record's disks. It may be of any depth."""
    todo = [root]
    while todo:
        node = todo.pop()
        if node.tag == "metadata":
            yield from node.iter(OwnDisk.TAG)
        else:
            yield node
            todo += reversed(node)


def _closed(node: Element) -> bool:
    """Whether a chain is written down to its end, which an empty element is."""
    backing_node, depth = node.find("backingStore"), 0
    while (
        backing_node is not None and backing_node.find("source") is not None and depth < _MAX_DEPTH
    ):
        backing_node, depth = backing_node.find("backingStore"), depth + 1
    return backing_node is not None and depth < _MAX_DEPTH


def _of_record(node: Element) -> Iterator[StorageReference]:
    pool, volume = node.get("pool"), node.get("volume")
    if pool and volume:
        yield StorageReference(volume=(pool, volume), format="raw")


def _of_source(source: Element, format: str | None, closed: bool) -> Iterator[StorageReference]:
    for key in ("file", "dev"):
        if (source.get(key) or "").startswith("/"):
            yield StorageReference(path=source.get(key), format=format, chain_complete=closed)
    if (source.get("dir") or "").startswith("/"):
        yield StorageReference(path=source.get("dir"), format="raw", folder=True)
    if source.get("volume"):
        volume = (source.get("pool", ""), source.get("volume", ""))
        yield StorageReference(volume=volume, format=format, chain_complete=closed)
    if source.get("protocol") and source.get("name"):
        yield StorageReference(server=source.get("name"), format=format, chain_complete=closed)
