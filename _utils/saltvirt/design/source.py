"""The location of a disk's data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt.design.put import put
from saltvirt.spec.disk import HostSpec, NetworkSourceSpec
from saltvirt.xml.devices.disk_source import DiskSource, SourceHost

if TYPE_CHECKING:
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.xml.devices.disk import Disk
    from saltvirt.xml.domain.metadata import OwnDisk

# the name of a location: its kind, then its parts
Location = tuple[str | None, ...]


@dataclass
class Source:
    """A file or block device (``path``), a volume of a pool, or a resource on a server.

    block: also of a pool's volume. format: the image's format (qcow2, raw). created: Salt Virt
    created it, so it may be deleted with the guest. ``path`` may be given in addition to a pool's
    volume, to find a disk that uses the path. direct: the definition refers to a pool's volume by
    its path or server, because libvirt does not accept the pool. cache: the cache mode of a new
    disk, if its DiskSpec has none. base: the path without the layers of snapshots, if ``path`` is
    such a layer.
    """

    path: str | None = None
    block: bool = False
    pool: str | None = None
    volume: str | None = None
    server: NetworkSourceSpec | None = None
    format: str | None = None
    created: bool = False
    direct: bool = False
    cache: str | None = None
    base: str | None = None

    @classmethod
    def of_spec(cls, disk: DiskSpec) -> Source | None:
        """The Source that a DiskSpec itself names, or None: then the caller must decide."""
        if disk.source:
            return cls(server=disk.source, format=disk.format)
        if disk.source_file and disk.pool and "/" not in disk.pool:
            return cls(pool=disk.pool, volume=disk.source_file, format=disk.format)
        if disk.source_file:
            block = disk.source_file.startswith("/dev/")
            return cls(path=disk.source_file, block=block, format=disk.format)
        return None

    @classmethod
    def of_disk(cls, disk: Disk) -> Source | None:
        """The Source of an xml.disk.Disk of a guest; None for other kinds (nvme, vhostuser and
        others), which are not changed."""
        source = disk.source
        if source.protocol:
            hosts = [HostSpec(name=h.name, port=h.port, socket=h.socket) for h in source.hosts]
            server = NetworkSourceSpec(source.protocol, source.name, hosts, source.query)
            return cls(server=server, format=disk.driver_type)
        if source.pool:
            return cls(pool=source.pool, volume=source.volume, format=disk.driver_type)
        if source.file or source.dev:
            path, block = source.file or source.dev, bool(source.dev)
            return cls(path=path, block=block, format=disk.driver_type)
        return None

    @property
    def kind(self) -> str:
        """libvirt's disk type: file, block, volume or network."""
        if self.server:
            return "network"
        if self.pool and not self.direct:
            return "volume"
        return "block" if self.block else "file"

    def element(self) -> DiskSource:
        """The DiskSource element."""
        if self.kind == "file":
            return DiskSource(file=self.path)
        if self.kind == "block":
            return DiskSource(dev=self.path)
        if self.kind == "volume":
            return DiskSource(pool=self.pool, volume=self.volume)
        return _on_server(self.server) if self.server else DiskSource()

    def locations(self) -> set[Location]:
        """All ways to name the location: a file may be named by its path and as a volume."""
        result: set[Location] = set()
        if self.path:
            result.add(("path", self.path))
        if self.pool and self.volume:
            result.add(("volume", self.pool, self.volume))
        if self.server:
            result.add(("network", self.element().location()))
        return result


def _on_server(server: NetworkSourceSpec) -> DiskSource:
    source = DiskSource()
    if server.auth:
        source.auth_type = server.auth.type or ("ceph" if server.protocol == "rbd" else "iscsi")
    put(source, server)
    for host in server.hosts or ():
        source.hosts.append(put(SourceHost(), host))
    return source


def disk_locations(disk: Disk) -> set[Location]:
    """All ways to name the location of an xml.disk.Disk."""
    source = disk.source
    result: set[Location] = set()
    if source.file or source.dev:
        result.add(("path", source.file or source.dev))
    if source.pool:
        result.add(("volume", source.pool, source.volume))
    if source.protocol:
        result.add(("network", source.location()))
    return result


def owns(own_disk: OwnDisk, disk: Disk) -> bool:
    """Whether an xml.metadata.OwnDisk is the record of an xml.disk.Disk that Salt Virt created."""
    if own_disk.target != disk.target:
        return False
    on_server = own_disk.pool and (disk.source.protocol or "") in ("rbd", "gluster", "sheepdog")
    if on_server and (disk.source.name or "").split("/")[-1] == own_disk.volume:
        return True
    return bool(own_locations(own_disk) & disk_locations(disk))


def own_locations(own_disk: OwnDisk) -> set[Location]:
    """All ways to name the location of an xml.metadata.OwnDisk, the record of a disk that was
    created."""
    result: set[Location] = set()
    if own_disk.path:
        result.add(("path", own_disk.path))
    if own_disk.pool:
        result.add(("volume", own_disk.pool, own_disk.volume))
    return result
