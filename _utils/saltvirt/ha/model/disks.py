"""The shared pools of the hosts that contain a guest's disks, according to its definition."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from xml.etree.ElementTree import Element


def pools(root: Element, folders: Iterable[str]) -> tuple[str, ...] | None:
    """Return those of the folders that contain a file of the guest. Return None if that is unknown:
    only the host's libvirt knows the path of a volume."""
    files = []
    for disk in root.iterfind("devices/disk"):
        source = disk.find("source")
        if source is not None and (disk.get("type") == "volume" or source.get("pool")):
            return None
        files += [file(disk)]
    files += [file(item) or (item.text or "").strip() for item in root.iterfind("os/nvram")]
    return tuple(item for item in folders if any(is_below(path, item) for path in files))


def file(element: Element) -> str:
    """Return the file of the element, or "": only the host's libvirt can name the file of a
    volume."""
    source = element.find("source[@file]")
    return source.get("file", "") if source is not None else ""


def is_below(path: str, folder: str) -> bool:
    """Return whether the path is below the folder."""
    return posixpath.normpath(path).startswith(posixpath.normpath(folder).rstrip("/") + "/")
