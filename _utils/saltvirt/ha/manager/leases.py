"""Guests whose disks lie on storage that bears no writer whose lock it gave to another: there the
lock itself, which QEMU takes, is the lease of docs/ha.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from saltvirt.ha.manager.definitions import StoredDefinition
from saltvirt.ha.model.disks import file, is_below, pools

# what a guest writes to without a lock of QEMU's, and what may be anything
_UNLOCKED = (
    *(f"devices/{kind}" for kind in ("tpm", "filesystem", "pstore", "memory/source/path")),
    *("{*}commandline", "{*}override"),
)


class LeaseDetector:
    """folders: of such storage."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = tuple(folders)
        self._cache: dict[str, tuple[str, bool]] = {}

    def evaluate(self, definitions: Mapping[str, StoredDefinition]) -> frozenset[str]:
        """The names of the guests that are leased, by what is known of each now."""
        if not self.folders:
            return frozenset()
        old, self._cache = self._cache, {}
        for name, definition in definitions.items():
            entry = old.get(name)
            if entry is None or entry[0] != definition.digest:
                entry = (
                    definition.digest,
                    is_leased(ElementTree.fromstring(definition.xml), self.folders),
                )
            self._cache[name] = entry
        return frozenset(name for name, (_, leased) in self._cache.items() if leased)


def is_leased(root: Element, folders: Iterable[str]) -> bool:
    """Whether QEMU holds a lock there on all that the guest writes to. What it does not lock, or
    what somebody else writes for it, is no lease; nor what QEMU's own arguments may add."""
    folders = tuple(folders)
    disks = [disk for disk in root.iterfind("devices/disk") if disk.find("readonly") is None]
    nvram = root.findall("os/nvram")
    flash = [item for item in root.iterfind("os/loader[@type='pflash']")
             if item.get("readonly") != "yes"]  # fmt: skip
    written = [file(part) for disk in disks for part in (disk, *disk.iterfind("source/dataStore"))]
    written += [file(item) or item.text or "" for item in (*nvram, *flash)]
    elsewhere = [path for path in written if not any(is_below(path, item) for item in folders)]
    shares = any(disk.find("shareable") is not None for disk in disks)
    unlocked = any(root.find(path) is not None for path in _UNLOCKED)
    efi = root.find("os[@firmware='efi']") is not None and not nvram
    return bool(disks) and not (elsewhere or shares or unlocked or efi)


class PoolLocator:
    """On which pools guests have their disks. folders: of all pools."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = tuple(folders)
        self._definitions: Mapping[str, StoredDefinition] | None = None
        self._pools: dict[str, tuple[str, ...]] = {}

    def evaluate(self, definitions: Mapping[str, StoredDefinition]) -> dict[str, tuple[str, ...]]:
        """The pools of each guest of which that can be told; the same dict until any changes."""
        if self._definitions is not definitions:
            pools_by_guest = {
                name: pools(ElementTree.fromstring(definition.xml), self.folders)
                for name, definition in definitions.items()
            }
            self._pools = {
                name: definition
                for name, definition in pools_by_guest.items()
                if definition is not None
            }
            self._definitions = definitions
        return self._pools
