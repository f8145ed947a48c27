"""References of a definition to storage: files, devices, folders and volumes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt.host.storage import files
from saltvirt.xml.domain.metadata import OwnDisk

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# a path in a QEMU option, in which commas are doubled; a path in JSON
_OPTION_PATH = re.compile(r"(?<=[=:])/(?:[^,]|,,)+")
_QUOTED = re.compile(r'"(?:file:)?(/[^"]+)"')
# elements with a data source and a format
_STORAGE = {"disk", "backingStore", "mirror", "dataStore", "filesystem"}

# libvirt does not read longer chains
_MAX_DEPTH = 200


@dataclass(frozen=True)
class StorageReference:
    """A reference to storage.

    path: on this host; or volume: (pool, name); or server: a name on a server. format: the declared
    format or None. chain_complete: the definition contains the whole backing chain. folder:
    everything below the path is meant. incidental: a path that only appears in the definition,
    which reveals nothing about the file's content.
    """

    path: str | None = None
    volume: tuple[str, str] | None = None
    server: str | None = None
    format: str | None = None
    chain_complete: bool = False
    folder: bool = False
    incidental: bool = False


def references_of(root: Element) -> Iterator[StorageReference]:
    """Yield the storage references in the XML of a domain, snapshot or checkpoint.

    Every absolute path counts, wherever it appears: firmware, kernels, saved memory. Of the
    metadata only the disks of the record count.
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
    """Return the paths in a QEMU command-line argument (``file=/a,if=virtio``, or JSON)."""
    if text.lstrip().startswith("{"):
        return _QUOTED.findall(text)
    return [path.replace(",,", ",") for path in _OPTION_PATH.findall(text)]


def _elements(root: Element) -> Iterator[Element]:
    """Yield all elements; of the metadata only the record's disks. Nesting depth is unlimited."""
    todo = [root]
    while todo:
        node = todo.pop()
        if node.tag == "metadata":
            yield from node.iter(OwnDisk.TAG)
        else:
            yield node
            todo += reversed(node)


def _closed(node: Element) -> bool:
    """Return whether the definition lists the backing chain to its end, which is an empty
    element."""
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
