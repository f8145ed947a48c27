"""Find guests whose disks are on storage that accepts no write of a host whose lock it gave to
another one. There the lock, which QEMU takes, is the lease of docs/how-to/ha.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from saltvirt.ha.manager.definitions import StoredDefinition
from saltvirt.ha.model.disks import file, is_below, pools

# what a guest writes to without a lock of QEMU, and elements that may add anything
_UNLOCKED = (
    *(f"devices/{kind}" for kind in ("tpm", "filesystem", "pstore", "memory/source/path")),
    *("{*}commandline", "{*}override"),
)


class LeaseDetector:
    """folders: on such storage."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = tuple(folders)
        self._cache: dict[str, tuple[str, bool]] = {}

    def evaluate(self, definitions: Mapping[str, StoredDefinition]) -> frozenset[str]:
        """Return the names of the guests that are leased, from their present definitions."""
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
    """Whether QEMU locks everything there that the guest writes to. Anything that QEMU does not
    lock, that another program writes for the guest, or that QEMU arguments of its own may add,
    prevents a lease."""
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
    """Finds the pools of guests' disks. folders: of all pools."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = tuple(folders)
        self._definitions: Mapping[str, StoredDefinition] | None = None
        self._pools: dict[str, tuple[str, ...]] = {}

    def evaluate(self, definitions: Mapping[str, StoredDefinition]) -> dict[str, tuple[str, ...]]:
        """Return the pools of each guest for which they can be determined: the same dict until one
        changes."""
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
