"""Guests whose disks lie on storage that bears no writer whose lock it gave to another: there the
lock itself, which QEMU takes, is the lease of docs/ha.md."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from saltvirt.hamaster.definitions import Definition


class Leased:
    """folders: of such storage."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = tuple(folders)
        self._seen: dict[str, tuple[str, bool]] = {}

    def look(self, definitions: Mapping[str, Definition]) -> frozenset[str]:
        """The names of the guests that are leased, by what is known of each now."""
        if not self.folders:
            return frozenset()
        old, self._seen = self._seen, {}
        for name, one in definitions.items():
            digest, found = old.get(name, ("", False))
            if digest != one.digest:
                found = is_leased(ElementTree.fromstring(one.xml), self.folders)
            self._seen[name] = one.digest, found
        return frozenset(name for name, (_, found) in self._seen.items() if found)


def is_leased(root: Element, folders: Iterable[str]) -> bool:
    """Whether QEMU holds a lock there on all that the guest writes to. What it does not lock, or
    what somebody else writes for it, is no lease."""
    folders = tuple(folders)
    disks = [disk for disk in root.iterfind("devices/disk") if disk.find("readonly") is None]
    nvram = root.find("os/nvram")
    written = [_file(disk) for disk in disks]
    if nvram is not None:
        written.append(_file(nvram) if nvram.find("source") is not None else nvram.text or "")
    elsewhere = [path for path in written if not any(_is_below(path, one) for one in folders)]
    shares = any(disk.find("shareable") is not None for disk in disks)
    others = any(root.find(f"devices/{kind}") is not None for kind in ("tpm", "filesystem"))
    efi = root.find("os[@firmware='efi']") is not None and nvram is None
    return bool(disks) and not (elsewhere or shares or others or efi)


def _file(element: Element) -> str:
    """The file that it is, or nothing: a volume is one that only its host's libvirt can name."""
    source = element.find("source")
    kind = element.get("type", "file")
    return (source.get("file") or "") if source is not None and kind == "file" else ""


def _is_below(path: str, folder: str) -> bool:
    found = posixpath.normpath(path) if path.startswith("/") else ""
    return found.startswith(posixpath.normpath(folder).rstrip("/") + "/")
