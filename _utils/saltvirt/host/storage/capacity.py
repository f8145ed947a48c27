"""Storage capacity of this host: file systems, pools, and the growth of thin disks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any, TypedDict
from xml.etree import ElementTree

from saltvirt.answers.creation import Phase
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import creation, describe
from saltvirt.host.storage import answers, filesystems
from saltvirt.placement import facts
from saltvirt.system import bounded_io

if TYPE_CHECKING:
    from saltvirt.xml.domain.metadata import GuestRecord, OwnDisk

# the path of a disk, or its (pool, volume)
DiskLocation = str | tuple[str, str]
_DISKS = ("disk", "lun")
_DISK = "devices/disk"


class ActivePool(TypedDict):
    """An active pool.

    path: target folder, or None without a local one. sizes: total and free bytes.
    """

    path: str | None
    sizes: dict[str, int]
    shared: str | None


class Stores:
    """File systems and pools below this host's disks, collected for one inventory."""

    def __init__(self, conn: libvirt.virConnect) -> None:
        self.conn = conn
        self.mounts = filesystems.read()
        self.pools = dict(_pools(conn))
        self.growing: dict[str, dict[DiskLocation, int]] = {}
        self.used = {"/"}

    def folder(self, path: str) -> str:
        """Return the id of the file system that contains, or will contain, a path."""
        filesystem = filesystems.filesystem_of(self.mounts, path)
        self.used.add(filesystem.id)
        return filesystem.id

    def pool(self, name: str) -> str | None:
        """Return the id of the storage below an active pool, or None."""
        active_pool = self.pools.get(name)
        if active_pool is None:
            return None
        return self.folder(active_pool["path"]) if active_pool["path"] else f"pool {name}"

    def shared(self, store: str | None) -> str | None:
        """Return the name that all hosts use for a shared store, or None."""
        if store in self.mounts:
            return self.mounts[store].shared
        return next(
            (p["shared"] for name, p in self.pools.items() if f"pool {name}" == store), None
        )

    def grow(self, store: str | None, key: DiskLocation, size: int) -> None:
        """Add the possible growth of a disk.

        key: identifies the disk, so that a disk of several guests is counted once.
        """
        if store and size > 0:
            growth = self.growing.setdefault(store, {})
            growth[key] = max(growth.get(key, 0), size)

    def promised(self, store: str | None) -> int:
        return sum(self.growing.get(store, {}).values()) if store else 0

    def read(self) -> dict[str, Any]:
        """Return ``stores``, ``mounts`` and ``pools`` of a facts.Inventory."""
        store_ids = {name: self.pool(name) for name in self.pools}
        shown = {m.id for m in self.mounts.values() if m.local or m.shared or m.id in self.used}
        sizes = {m.id: filesystems.sizes(m) for m in self.mounts.values() if m.mount_point in shown}
        stores = {store: self._store_facts(store, sizes[store]) for store in sizes}
        pools = {}
        for name, store_id in store_ids.items():
            pool_store = stores.get(store_id) if store_id else None
            pool_store = pool_store or self._store_facts(store_id, self.pools[name]["sizes"])
            pools[name] = facts.StoragePool(**vars(pool_store), store=store_id)
        return {
            "stores": stores,
            "mounts": {m.mount_point: m.id for m in self.mounts.values() if m.id in stores},
            "pools": pools,
        }

    def _store_facts(self, store: str | None, sizes: dict[str, int]) -> facts.StorageSpace:
        return facts.StorageSpace(
            **sizes, promised_bytes=self.promised(store), shared=self.shared(store)
        )

    def disks(
        self,
        name: str,
        trees: Iterable[ElementTree.Element],
        stats: dict[str, Any],
        active: bool,
        record: GuestRecord,
    ) -> tuple[facts.DiskFootprint, ...]:
        """Return the writable disks of a guest as DiskFootprints, and add their growth.

        trees: definitions of the guest. stats: its libvirt statistics. record: its metadata record.
        """
        sizes = describe.block_stats(stats)
        created_bytes = {
            _recorded_location(own_disk): own_disk.size_bytes for own_disk in record.disks
        }
        disks_by_location: dict[DiskLocation, facts.DiskFootprint | None] = {}
        for tree in trees:
            for node in tree.iterfind(_DISK):
                location = _location_of(node)
                if location is None or location in disks_by_location:
                    continue
                target = node.find("target")
                stats_entry = sizes.get(target.get("dev", ""), {}) if target is not None else {}
                disks_by_location[location] = self._disk(
                    location, (stats_entry, active), created_bytes.get(location)
                )
        if creation.of_record(record) is Phase.CREATING:
            for own_disk in record.disks:
                own_location = _recorded_location(own_disk)
                if own_location not in disks_by_location and own_disk.size_bytes:
                    self.grow(self._store(own_location), own_location, own_disk.size_bytes)
        return tuple(location for location in disks_by_location.values() if location)

    def _store(self, location: DiskLocation) -> str | None:
        return self.pool(location[0]) if isinstance(location, tuple) else self.folder(location)

    def _disk(
        self,
        location: DiskLocation,
        stats_active: tuple[dict[str, Any], bool],
        created_bytes: int | None,
    ) -> facts.DiskFootprint | None:
        store = self._store(location)
        size, used_bytes = self._sizes(location, *stats_active)
        size = max(size or 0, created_bytes or 0)
        if isinstance(location, tuple):
            self.grow(store, location, size - used_bytes)
            return facts.DiskFootprint(size, pool=location[0], shared=self.shared(store))
        if location.startswith("/dev/"):
            return None  # an existing device does not grow
        self.grow(store, bounded_io.real(location), size - used_bytes)
        return facts.DiskFootprint(size, path=location, shared=self.shared(store))

    def _sizes(
        self, location: DiskLocation, stats: dict[str, Any], active: bool
    ) -> tuple[int, int]:
        """Return (maximum bytes, allocated bytes) of a disk."""
        if "capacity" in stats:
            return stats["capacity"], stats.get("physical" if active else "allocation", 0)
        try:
            if isinstance(location, tuple):
                pool = self.conn.storagePoolLookupByName(location[0])
                volume = pool.storageVolLookupByName(location[1])
                answers.volume(volume)
                _, capacity, allocation = volume.info()
                return capacity, allocation
            stat = bounded_io.stat(location)
        except (OSError, libvirt.libvirtError):
            return 0, 0
        return stat.st_size, stat.st_blocks * 512


def _recorded_location(own_disk: OwnDisk) -> DiskLocation:
    """Return the location of a disk in the metadata record."""
    return own_disk.path or (own_disk.pool or "", own_disk.volume or "")


def _location_of(node: ElementTree.Element) -> DiskLocation | None:
    """Return the path or (pool, volume) of a disk element; None if the guest does not write to
    it."""
    source = node.find("source")
    if source is None or node.get("device", "disk") not in _DISKS:
        return None
    if node.find("readonly") is not None:
        return None
    if node.get("type") == "volume":
        return source.get("pool", ""), source.get("volume", "")
    return source.get("file") or source.get("dev") or None


def _pools(conn: libvirt.virConnect) -> Iterator[tuple[str, ActivePool]]:
    """Yield (name, ActivePool) of each active pool."""
    for pool in conn.listAllStoragePools(libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE):
        try:
            _, total, _, free = pool.info()
            tree = ElementTree.fromstring(pool.XMLDesc())
            name = pool.name()
        except libvirt.libvirtError:
            continue  # stopped since the listing
        path = tree.findtext("target/path")
        is_folder = path and not path.startswith("/dev") and _is_folder(path)
        yield (
            name,
            {
                "path": path if is_folder else None,
                "sizes": {"total_bytes": total, "free_bytes": free},
                "shared": _shared_name(tree),
            },
        )


def _is_folder(path: str) -> bool:
    """Return whether a path is a folder. One that does not respond counts as a folder."""
    try:
        return S_ISDIR(bounded_io.stat(path).st_mode)
    except bounded_io.StorageTimeout:
        return True
    except OSError:
        return False


def _shared_name(tree: ElementTree.Element) -> str | None:
    """Return the name that all hosts use for a networked pool: its type, servers and source."""
    kind = tree.get("type")
    if kind not in ("rbd", "iscsi", "iscsi-direct", "gluster", "sheepdog"):
        return None
    hosts = sorted(host.get("name") or "" for host in tree.iterfind("source/host"))
    device = tree.find("source/device")
    source_parts = [
        tree.findtext("source/name"),
        device.get("path") if device is not None else None,
    ]
    return " ".join([kind, ",".join(hosts), *filter(None, source_parts)])
