"""The plan of one disk of a new guest: its source, its location, its format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from saltvirt import errors
from saltvirt.design.source import Source
from saltvirt.host.provision import existing_disk
from saltvirt.spec.disk import DiskSpec

# of a device: what has neither a table of partitions nor a file system in it is blank
_PROBE_BYTES = 1024 * 1024


# the real path of a disk, or its (pool, volume)
StorageLocation = str | tuple[str, str]


# told how many bytes are done, and of how many; None where nobody knows
Progress = Callable[[int, "int | None"], object]


class ImageSource(Protocol):
    """What a disk is made from: an image of the cache, or a disk that is copied."""

    @property
    def path(self) -> str:
        """Where it is on this host."""

    @property
    def format(self) -> str:
        """qcow2, raw, ..."""

    @property
    def virtual_size_bytes(self) -> int:
        """How large a disk it describes."""

    @property
    def files(self) -> tuple[str, ...]:
        """What it was found to be based on, beside what is in its own folder."""

    @property
    def source(self) -> str:
        """The address by which it was asked for."""

    @property
    def sha256(self) -> str | None:
        """Of its content; None where nobody asked."""


@dataclass
class DiskBuild:
    """One disk of the guest, and how it comes to be.

    spec: its DiskSpec. make: whether it has to be made; what is not made is used as it is
    and never deleted. format: raw, qcow2, … or None where QEMU has no say. path: where the
    disk is (None for one in a pool that is not made yet, or on a server). image: a
    CachedImage, once it was fetched. write: what fills it instead, called with the path.
    direct: the Source that names a pool's volume for guests that cannot name the pool. shared:
    whether its folder is on a file system that other hosts reach, too.
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

    @property
    def source(self) -> Source | None:
        """Where its data is, for the domain's definition; None where the spec says it all."""
        if self.direct:
            source = replace(self.direct, pool=self.pool, volume=self.volume)
        elif self.pool:
            source = Source(pool=self.pool, volume=self.volume)
        elif self.path:
            source = Source(path=self.path, block=existing_disk.is_block(self.path))
        else:
            return None
        cache = "none" if self.shared else None
        return replace(source, format=self.format, created=self.make, cache=cache)

    @property
    def file(self) -> str:
        """The path of one that is in no pool or is made by now. Raises OperationFailed."""
        if not self.path:
            raise errors.OperationFailed(f"disk {self.spec.name} has no path")
        return self.path

    @property
    def size_bytes(self) -> int | None:
        """How large it will be: what was asked for, else the image's own size."""
        return self.spec.size_bytes or (self.image.virtual_size_bytes if self.image else None)
