"""Guests whose disks lie on storage that bears no writer whose lock it gave to another: there the
lock itself, which QEMU takes, is the lease of docs/ha.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from saltvirt.ha.disks import file, is_below, pools
from saltvirt.hamaster.definitions import Definition

# what a guest writes to without a lock of QEMU's, and what may be anything
_OTHERS = (
    *(f"devices/{kind}" for kind in ("tpm", "filesystem", "pstore", "memory/source/path")),
    *("{*}commandline", "{*}override"),
)


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
            known = old.get(name)
            if known is None or known[0] != one.digest:
                known = one.digest, is_leased(ElementTree.fromstring(one.xml), self.folders)
            self._seen[name] = known
        return frozenset(name for name, (_, found) in self._seen.items() if found)


def is_leased(root: Element, folders: Iterable[str]) -> bool:
    """Whether QEMU holds a lock there on all that the guest writes to. What it does not lock, or
    what somebody else writes for it, is no lease; nor what QEMU's own arguments may add."""
    folders = tuple(folders)
    disks = [disk for disk in root.iterfind("devices/disk") if disk.find("readonly") is None]
    nvram = root.findall("os/nvram")
    flash = [one for one in root.iterfind("os/loader[@type='pflash']")
             if one.get("readonly") != "yes"]  # fmt: skip
    written = [file(part) for disk in disks for part in (disk, *disk.iterfind("source/dataStore"))]
    written += [file(one) or one.text or "" for one in (*nvram, *flash)]
    elsewhere = [path for path in written if not any(is_below(path, one) for one in folders)]
    shares = any(disk.find("shareable") is not None for disk in disks)
    others = any(root.find(path) is not None for path in _OTHERS)
    efi = root.find("os[@firmware='efi']") is not None and not nvram
    return bool(disks) and not (elsewhere or shares or others or efi)


class Pooled:
    """On which pools guests have their disks. folders: of all pools."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = tuple(folders)
        self._known: Mapping[str, Definition] | None = None
        self._found: dict[str, tuple[str, ...]] = {}

    def look(self, definitions: Mapping[str, Definition]) -> dict[str, tuple[str, ...]]:
        """The pools of each guest of which that can be told; the same dict until any changes."""
        if self._known is not definitions:
            found = {
                name: pools(ElementTree.fromstring(one.xml), self.folders)
                for name, one in definitions.items()
            }
            self._found = {name: one for name, one in found.items() if one is not None}
            self._known = definitions
        return self._found
