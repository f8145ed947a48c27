"""On which of the hosts' shared pools a guest has its disks, by its definition."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from xml.etree.ElementTree import Element


def pools(root: Element, folders: Iterable[str]) -> tuple[str, ...] | None:
    """Those of the folders below which a file of the guest is; None where that cannot be told: of
    a volume its host's libvirt alone knows where it is."""
    files = []
    for disk in root.iterfind("devices/disk"):
        source = disk.find("source")
        if source is not None and (disk.get("type") == "volume" or source.get("pool")):
            return None
        files += [file(disk)]
    files += [file(item) or (item.text or "").strip() for item in root.iterfind("os/nvram")]
    return tuple(item for item in folders if any(is_below(path, item) for path in files))


def file(element: Element) -> str:
    """The file that it is, or nothing: a volume is one that only its host's libvirt can name."""
    source = element.find("source[@file]")
    return source.get("file", "") if source is not None else ""


def is_below(path: str, folder: str) -> bool:
    """Whether the path is below that folder."""
    return posixpath.normpath(path).startswith(posixpath.normpath(folder).rstrip("/") + "/")
