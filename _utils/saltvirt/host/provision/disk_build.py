"""The plan of one disk of a new guest: its source, its location, its format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from saltvirt import errors
from saltvirt.design.source import Source
from saltvirt.host.provision import existing_disk
from saltvirt.spec.disk import DiskSpec

# a device without a partition table or file system in these bytes is blank
_PROBE_BYTES = 1024 * 1024


# the real path of a disk, or its (pool, volume)
StorageLocation = str | tuple[str, str]


# called with the bytes done, and the total or None if it is unknown
Progress = Callable[[int, "int | None"], object]


class ImageSource(Protocol):
    """The source of a disk: a cached image, or a disk to copy."""

    @property
    def path(self) -> str:
        """The path on this host."""

    @property
    def format(self) -> str:
        """The format, such as qcow2 or raw."""

    @property
    def virtual_size_bytes(self) -> int:
        """The virtual size of the disk."""

    @property
    def files(self) -> tuple[str, ...]:
        """Backing files outside its own folder."""

    @property
    def source(self) -> str:
        """The address that was requested."""

    @property
    def sha256(self) -> str | None:
        """The digest of its content, or None if it was not computed."""


@dataclass
class DiskBuild:
    """One disk of a guest, and how to create it.

    spec: its DiskSpec. make: whether to create it; an existing disk is used unchanged and never
    deleted. format: raw, qcow2, …, or None if QEMU does not choose it. path: its path, or None for
    a pool volume that does not exist yet, or on a server. image: the source, once it is fetched.
    write: a function that fills the path instead. direct: the Source of a pool volume for guests
    that cannot refer to pools. shared: whether other hosts reach its file system. block: whether it
    is in a pool of block devices. base: the path without the layers of the guest's snapshots, if
    ``path`` is such a layer.
    """

    spec: DiskSpec
    make: bool = False
    format: str | None = None
    path: str | None = None
    pool: str | None = None
    volume: str | None = None
    image: ImageSource | None = None
    write: Callable[[str], object] | None = None
    direct: Source | None = None
    shared: bool = False
    block: bool = False
    base: str | None = None

    @property
    def source(self) -> Source | None:
        """The location of its data for the definition; None if the spec contains it."""
        if self.direct:
            source = replace(self.direct, pool=self.pool, volume=self.volume)
        elif self.pool:
            source = Source(pool=self.pool, volume=self.volume, block=self.block)
        elif self.path:
            source = Source(path=self.path, block=existing_disk.is_block(self.path))
        else:
            return None
        cache = "none" if self.shared else None
        return replace(source, format=self.format, created=self.make, cache=cache, base=self.base)

    @property
    def file(self) -> str:
        """The path of a disk outside a pool, or of one that exists. Raises OperationFailed without
        one."""
        if not self.path:
            raise errors.OperationFailed(f"disk {self.spec.name} has no path")
        return self.path

    @property
    def size_bytes(self) -> int | None:
        """The requested size, or else the size of the image."""
        return self.spec.size_bytes or (self.image.virtual_size_bytes if self.image else None)
