"""The tree of a guest's snapshots, read from libvirt's XML.

A snapshot is internal (inside the qcow2 file that a disk has at that moment) or external (the
disk's file stays as it is, and a layer on top of it takes what is written from then on).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

INTERNAL, EXTERNAL, NO = "internal", "external", "no"

VolumePath = Callable[[str, str], str]


@dataclass(frozen=True)
class SnapshotDisk:
    """One disk of a snapshot. target: e.g. ``vda``. kind: INTERNAL, EXTERNAL or NO. base: where the
    disk had its data when the snapshot was taken. layer: what an external snapshot began on it."""

    target: str
    kind: str
    base: str | None = None
    layer: str | None = None


@dataclass(frozen=True)
class SnapshotNode:
    """One snapshot. parent: the name of the one that it was taken on top of. created: in seconds
    since 1970, as no clock is turned back in it. memory: INTERNAL, EXTERNAL or NO. current: the
    next one is taken on top of it. variables, tpm: the guest had firmware variables in a file, and
    an emulated TPM, which are in no snapshot of libvirt's."""

    name: str
    parent: str | None = None
    created: int = 0
    state: str | None = None
    description: str | None = None
    memory: str = NO
    disks: tuple[SnapshotDisk, ...] = ()
    current: bool = False
    variables: bool = False
    tpm: bool = False

    @property
    def external(self) -> bool:
        """Whether any part of it is in a file of its own."""
        return EXTERNAL in (self.memory, *(disk.kind for disk in self.disks))

    @property
    def kind(self) -> str:
        return EXTERNAL if self.external else INTERNAL

    @property
    def layers(self) -> frozenset[str]:
        """Where the layers are that an external snapshot began."""
        return frozenset(disk.layer for disk in self.disks if disk.layer)

    @property
    def inside(self) -> frozenset[str]:
        """Where the disks are in which an internal snapshot is."""
        bases = (disk.base for disk in self.disks if disk.kind == INTERNAL)
        return frozenset(base for base in bases if base)

    @property
    def of_layers_alone(self) -> bool:
        """Whether it is nothing but layers, to which one goes back by beginning them anew."""
        return self.memory == NO and bool(self.layers) and not self.inside


def of_pool(pool: str, volume: str) -> str:
    """A volume by its names, where its path is not known."""
    return f"{pool}/{volume}"


def location(source: ElementTree.Element | None, volume: VolumePath = of_pool) -> str | None:
    """Where a disk has its data: a path, or the name of what a server has. volume: tells the path
    of a volume by pool and name."""
    if source is None:
        return None
    if source.get("volume"):
        return volume(source.get("pool", ""), source.get("volume", ""))
    return source.get("file") or source.get("dev") or source.get("name")


def read(text: str, current: bool = False, volume: VolumePath = of_pool) -> SnapshotNode:
    """The Snapshot in libvirt's XML. volume: as for :func:`place`."""
    root = ElementTree.fromstring(text)
    memory = root.find("memory")
    bases = {}
    for disk in root.iterfind("domain/devices/disk"):
        target = disk.find("target")
        bases[target.get("dev") if target is not None else None] = location(
            disk.find("source"), volume
        )
    disks = []
    for disk in root.iterfind("disks/disk"):
        name, kind = disk.get("name", ""), disk.get("snapshot", NO)
        layer = location(disk.find("source"), volume) if kind == EXTERNAL else None
        disks.append(SnapshotDisk(name, kind, bases.get(name), layer))
    return SnapshotNode(
        name=root.findtext("name") or "",
        parent=root.findtext("parent/name"),
        created=int(root.findtext("creationTime") or 0),
        state=root.findtext("state"),
        description=root.findtext("description"),
        memory=memory.get("snapshot", NO) if memory is not None else NO,
        disks=tuple(disks),
        current=current,
        variables=has_variables(root.find("domain")),
        tpm=root.find("domain/devices/tpm/backend[@type='emulator']") is not None,
    )


def has_variables(domain: ElementTree.Element | None) -> bool:
    """Whether a guest has firmware that keeps variables. domain: its definition."""
    if domain is None:
        return False
    loader = domain.find("os/loader")
    if loader is not None and loader.get("stateless") == "yes":
        return False
    flash = loader is not None and loader.get("type") == "pflash"
    efi = domain.find("os[@firmware='efi']") is not None
    return flash or efi or domain.find("os/nvram") is not None


class SnapshotTree:
    """The snapshots of one guest, by name; each comes after the one that it was taken on top of."""

    def __init__(self, snapshots: Iterable[SnapshotNode] = ()) -> None:
        self._named = {snapshot.name: snapshot for snapshot in snapshots}

    def __iter__(self) -> Iterator[SnapshotNode]:
        return iter(self._named.values())

    def __len__(self) -> int:
        return len(self._named)

    def __contains__(self, name: object) -> bool:
        return name in self._named

    def __getitem__(self, name: str) -> SnapshotNode:
        return self._named[name]

    @property
    def current(self) -> SnapshotNode | None:
        """The one on top of which the next is taken."""
        return next((snapshot for snapshot in self._named.values() if snapshot.current), None)

    def newest_first(self) -> list[str]:
        """All names; what was taken on top of another comes before it."""
        return list(reversed(self._named))

    def descendants(self, name: str) -> set[str]:
        """The names of those that were taken on top of this one, directly or not."""
        names = {name}
        for snapshot in self._named.values():
            if snapshot.parent in names:
                names.add(snapshot.name)
        return names - {name}

    def ancestors(self, name: str) -> set[str]:
        """The names of those on top of which this one was taken, directly or not."""
        names: set[str] = set()
        parent = self._named[name].parent
        while parent in self._named and parent not in names:
            names.add(parent)
            parent = self._named[parent].parent
        return names

    def with_children(self, names: Collection[str]) -> set[str]:
        """These, and all that were taken on top of them."""
        return {*names}.union(*map(self.descendants, names))

    def below(self, layer: str) -> set[str]:
        """What a layer stands on, as far as the snapshots tell."""
        bases = {
            disk.layer: disk.base
            for snapshot in self._named.values()
            for disk in snapshot.disks
            if disk.layer and disk.base
        }
        places: set[str] = set()
        while layer in bases and bases[layer] not in places:
            layer = bases[layer]
            places.add(layer)
        return places
