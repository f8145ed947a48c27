"""Where the data of a disk is, once that is decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt.spec.disk import AuthSpec, HostSpec
from saltvirt.xml.devices.disk_source import DiskSource, SourceHost

if TYPE_CHECKING:
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.xml.devices.disk import Disk
    from saltvirt.xml.domain.metadata import OwnDisk

_ON_SERVER = (
    "protocol", "name", "hosts", "query", "snapshot", "config_file", "initiator", "tls", "auth",
)  # fmt: skip
# how a place is named: its kind first, then the words for it
Location = tuple[str | None, ...]


@dataclass
class Source:
    """One of: a file or block device (``path``), a volume of a pool, something on a server.

    format: the image's format (qcow2, raw). made: we made it, so it may go with the guest.
    ``path`` may be given beside a pool's volume, to find a disk that names it so. direct: the
    definition names a pool's volume by its path or server, where libvirt does not take the pool.
    hosts: of saltvirt.spec.disk.HostSpec. auth: saltvirt.spec.disk.AuthSpec. cache: the cache mode
    of a new disk there, if its DiskSpec has none.
    """

    path: str | None = None
    block: bool = False
    pool: str | None = None
    volume: str | None = None
    protocol: str | None = None
    name: str | None = None
    hosts: list[HostSpec] | None = None
    query: str | None = None
    snapshot: str | None = None
    config_file: str | None = None
    initiator: str | None = None
    tls: bool | None = None
    auth: AuthSpec | None = None
    format: str | None = None
    created: bool = False
    direct: bool = False
    cache: str | None = None

    @classmethod
    def of_spec(cls, disk: DiskSpec) -> Source | None:
        """The Source that a DiskSpec names by itself, or None: then the caller must say."""
        if disk.source:
            server_fields = {name: getattr(disk.source, name) for name in _ON_SERVER}
            return cls(**server_fields, format=disk.format)
        if disk.source_file and disk.pool and "/" not in disk.pool:
            return cls(pool=disk.pool, volume=disk.source_file, format=disk.format)
        if disk.source_file:
            block = disk.source_file.startswith("/dev/")
            return cls(path=disk.source_file, block=block, format=disk.format)
        return None

    @classmethod
    def of_disk(cls, disk: Disk) -> Source | None:
        """The Source of an xml.disk.Disk that a guest has; None for one of another kind (nvme,
        vhostuser …), which stays as it is."""
        source = disk.source
        if source.protocol:
            hosts = [HostSpec(name=h.name, port=h.port, socket=h.socket) for h in source.hosts]
            return cls(
                protocol=source.protocol, name=source.name, query=source.query, hosts=hosts,
                format=disk.driver_type,
            )  # fmt: skip
        if source.pool:
            return cls(pool=source.pool, volume=source.volume, format=disk.driver_type)
        if source.file or source.dev:
            path, block = source.file or source.dev, bool(source.dev)
            return cls(path=path, block=block, format=disk.driver_type)
        return None

    @property
    def kind(self) -> str:
        """libvirt's disk type: file, block, volume or network."""
        if self.protocol:
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
        return self._network()

    def _network(self) -> DiskSource:
        source = DiskSource(protocol=self.protocol, name=self.name, query=self.query, tls=self.tls)
        for host in self.hosts or ():
            source.hosts.append(
                SourceHost(
                    name=host.name, port=host.port, transport=host.transport, socket=host.socket
                )
            )
        source.snapshot = self.snapshot
        source.config_file = self.config_file
        source.initiator = self.initiator
        if self.auth:
            source.auth_username = self.auth.username
            source.auth_type = self.auth.type or ("ceph" if self.protocol == "rbd" else "iscsi")
            source.auth_usage = self.auth.usage
            source.auth_uuid = self.auth.uuid
        return source

    def locations(self) -> set[Location]:
        """Every way to name the place: a file may be known by its path and as a volume."""
        result: set[Location] = set()
        if self.path:
            result.add(("path", self.path))
        if self.pool and self.volume:
            result.add(("volume", self.pool, self.volume))
        if self.protocol:
            result.add(("network", self.element().location()))
        return result


def disk_locations(disk: Disk) -> set[Location]:
    """The same for an xml.disk.Disk."""
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
    """Whether an xml.metadata.OwnDisk speaks of an xml.disk.Disk: one that we made."""
    if own_disk.target != disk.target:
        return False
    on_server = own_disk.pool and (disk.source.protocol or "") in ("rbd", "gluster", "sheepdog")
    if on_server and (disk.source.name or "").split("/")[-1] == own_disk.volume:
        return True
    return bool(own_locations(own_disk) & disk_locations(disk))


def own_locations(own_disk: OwnDisk) -> set[Location]:
    """The same for an xml.metadata.OwnDisk, as our record names a disk that we made."""
    result: set[Location] = set()
    if own_disk.path:
        result.add(("path", own_disk.path))
    if own_disk.pool:
        result.add(("volume", own_disk.pool, own_disk.volume))
    return result
