"""The storage of this host: file systems and pools, and what thin disks may still grow on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any, TypedDict
from xml.etree import ElementTree

from saltvirt.creation import Phase
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import creation, describe
from saltvirt.host.storage import answers, bounded, filesystems
from saltvirt.placement import facts

if TYPE_CHECKING:
    from saltvirt.xml.metadata import GuestRecord, OwnDisk

# the path of a disk, or its pool and volume
Place = str | tuple[str, str]
_DISKS = ("disk", "lun")
_DISK = "devices/disk"


class ActivePool(TypedDict):
    """path: of its folder; None where it is none of this host's. sizes: total and free bytes."""

    path: str | None
    sizes: dict[str, int]
    shared: str | None


class Stores:
    """What this host's disks are on, while one inventory is taken."""

    def __init__(self, conn: libvirt.virConnect) -> None:
        self.conn = conn
        self.mounts = filesystems.read()
        self.pools = dict(_pools(conn))
        self.growing: dict[str, dict[Place, int]] = {}
        self.used = {"/"}

    def folder(self, path: str) -> str:
        """The id of the file system that a path is, or will be, on."""
        found = filesystems.of(self.mounts, path)
        self.used.add(found.id)
        return found.id

    def pool(self, name: str) -> str | None:
        """The id of what an active pool is on, or None."""
        found = self.pools.get(name)
        if found is None:
            return None
        return self.folder(found["path"]) if found["path"] else f"pool {name}"

    def shared(self, store: str | None) -> str | None:
        """The name of a store for all hosts that reach it, or None."""
        if store in self.mounts:
            return self.mounts[store].shared
        return next(
            (p["shared"] for name, p in self.pools.items() if f"pool {name}" == store), None
        )

    def grow(self, store: str | None, key: Place, size: int) -> None:
        """Counts what a disk may still grow. key: what tells it from others; one that several
        guests have is counted once."""
        if store and size > 0:
            known = self.growing.setdefault(store, {})
            known[key] = max(known.get(key, 0), size)

    def promised(self, store: str | None) -> int:
        return sum(self.growing.get(store, {}).values()) if store else 0

    def read(self) -> dict[str, Any]:
        """``stores``, ``mounts`` and ``pools`` of a facts.Inventory."""
        places = {name: self.pool(name) for name in self.pools}
        shown = {m.id for m in self.mounts.values() if m.local or m.shared or m.id in self.used}
        sizes = {m.id: filesystems.sizes(m) for m in self.mounts.values() if m.point in shown}
        stores = {store: self._told(store, sizes[store]) for store in sizes}
        pools = {}
        for name, place in places.items():
            known = stores.get(place) if place else None
            known = known or self._told(place, self.pools[name]["sizes"])
            pools[name] = facts.Pool(**vars(known), store=place)
        return {
            "stores": stores,
            "mounts": {m.point: m.id for m in self.mounts.values() if m.id in stores},
            "pools": pools,
        }

    def _told(self, store: str | None, sizes: dict[str, int]) -> facts.Store:
        return facts.Store(**sizes, promised_bytes=self.promised(store), shared=self.shared(store))

    def disks(
        self,
        name: str,
        trees: Iterable[ElementTree.Element],
        stats: dict[str, Any],
        active: bool,
        record: GuestRecord,
    ) -> tuple[facts.Disk, ...]:
        """The disks that a guest writes to, as a tuple of facts.Disk; counts their growth.

        trees: its definitions; stats: libvirt's of it; record: our own in it.
        """
        sizes = describe.block_stats(stats)
        made = {_own_place(own): own.size_bytes for own in record.disks}
        found: dict[Place, facts.Disk | None] = {}
        for tree in trees:
            for node in tree.iterfind(_DISK):
                disk = _place(node)
                if disk is None or disk in found:
                    continue
                target = node.find("target")
                known = sizes.get(target.get("dev", ""), {}) if target is not None else {}
                found[disk] = self._disk(disk, (known, active), made.get(disk))
        if creation.of_record(record) is Phase.CREATING:
            for own in record.disks:
                place = _own_place(own)
                if place not in found and own.size_bytes:
                    self.grow(self._store(place), place, own.size_bytes)
        return tuple(disk for disk in found.values() if disk)

    def _store(self, place: Place) -> str | None:
        return self.pool(place[0]) if isinstance(place, tuple) else self.folder(place)

    def _disk(
        self, place: Place, seen: tuple[dict[str, Any], bool], made_bytes: int | None
    ) -> facts.Disk | None:
        store = self._store(place)
        size, has = self._sizes(place, *seen)
        size = max(size or 0, made_bytes or 0)
        if isinstance(place, tuple):
            self.grow(store, place, size - has)
            return facts.Disk(size, pool=place[0], shared=self.shared(store))
        if place.startswith("/dev/"):
            return None  # a device that is there as it is
        self.grow(store, bounded.real(place), size - has)
        return facts.Disk(size, path=place, shared=self.shared(store))

    def _sizes(self, place: Place, stats: dict[str, Any], active: bool) -> tuple[int, int]:
        """(how large a disk may become, what it takes now) in bytes."""
        if "capacity" in stats:
            return stats["capacity"], stats.get("physical" if active else "allocation", 0)
        try:
            if isinstance(place, tuple):
                pool = self.conn.storagePoolLookupByName(place[0])
                volume = pool.storageVolLookupByName(place[1])
                answers.volume(volume)
                _, capacity, allocation = volume.info()
                return capacity, allocation
            stat = bounded.stat(place)
        except (OSError, libvirt.libvirtError):
            return 0, 0
        return stat.st_size, stat.st_blocks * 512


def _own_place(own: OwnDisk) -> Place:
    """The same of a disk in our record."""
    return own.path or (own.pool or "", own.volume or "")


def _place(node: ElementTree.Element) -> Place | None:
    """The path of a disk element, or its (pool, volume); None for what a guest does not fill."""
    source = node.find("source")
    if source is None or node.get("device", "disk") not in _DISKS:
        return None
    if node.find("readonly") is not None:
        return None
    if node.get("type") == "volume":
        return source.get("pool", ""), source.get("volume", "")
    return source.get("file") or source.get("dev") or None


def _pools(conn: libvirt.virConnect) -> Iterator[tuple[str, ActivePool]]:
    """(name, ``path`` of a folder or None, ``sizes``, ``shared``) of each active pool."""
    for pool in conn.listAllStoragePools(libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE):
        try:
            _, total, _, free = pool.info()
            tree = ElementTree.fromstring(pool.XMLDesc())
            name = pool.name()
        except libvirt.libvirtError:
            continue  # stopped since it was listed
        path = tree.findtext("target/path")
        plain = path and not path.startswith("/dev") and _is_folder(path)
        yield (
            name,
            {
                "path": path if plain else None,
                "sizes": {"total_bytes": total, "free_bytes": free},
                "shared": _shared(tree),
            },
        )


def _is_folder(path: str) -> bool:
    """Also of one that does not answer."""
    try:
        return S_ISDIR(bounded.stat(path).st_mode)
    except bounded.Silent:
        return True
    except OSError:
        return False


def _shared(tree: ElementTree.Element) -> str | None:
    """What all hosts call a pool of a server: its kind, the server, and what it is there."""
    kind = tree.get("type")
    if kind not in ("rbd", "iscsi", "iscsi-direct", "gluster", "sheepdog"):
        return None
    hosts = sorted(host.get("name") or "" for host in tree.iterfind("source/host"))
    device = tree.find("source/device")
    what = [tree.findtext("source/name"), device.get("path") if device is not None else None]
    return " ".join([kind, ",".join(hosts), *filter(None, what)])
