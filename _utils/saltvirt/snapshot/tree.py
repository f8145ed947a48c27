"""The tree of a guest's snapshots, read from libvirt's XML.

A snapshot is internal (inside the disk's current qcow2 file) or external (the disk's file is left
unchanged, and a new overlay receives all further writes).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

INTERNAL, EXTERNAL, NO = "internal", "external", "no"

VolumePath = Callable[[str, str], str]


@dataclass(frozen=True)
class SnapshotDisk:
    """A disk of a snapshot. target: for example ``vda``. kind: INTERNAL, EXTERNAL or NO. base:
    location of the disk's data when the snapshot was taken. layer: overlay that an external
    snapshot created on it. reverted: overlay that libvirt created in its place when it reverted to
    a snapshot with children."""

    target: str
    kind: str
    base: str | None = None
    layer: str | None = None
    reverted: str | None = None

    @property
    def written(self) -> str | None:
        """The overlay with what was written since the snapshot, or since the revert to it."""
        return self.reverted or self.layer


@dataclass(frozen=True)
class SnapshotNode:
    """A snapshot. parent: name of the snapshot that it is based on. created: seconds since 1970,
    independent of changes of local time. memory: INTERNAL, EXTERNAL or NO. current: the next
    snapshot will be based on it. variables, tpm: the guest had firmware variables in a file, and an
    emulated TPM, which libvirt's snapshots do not include."""

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
        """Whether any part of the snapshot is in a file of its own."""
        return EXTERNAL in (self.memory, *(disk.kind for disk in self.disks))

    @property
    def kind(self) -> str:
        return EXTERNAL if self.external else INTERNAL

    @property
    def layers(self) -> frozenset[str]:
        """The locations of the overlays that an external snapshot created."""
        return frozenset(disk.layer for disk in self.disks if disk.layer)

    @property
    def inside(self) -> frozenset[str]:
        """The locations of the disks that contain an internal snapshot."""
        bases = (disk.base for disk in self.disks if disk.kind == INTERNAL)
        return frozenset(base for base in bases if base)

    @property
    def of_layers_alone(self) -> bool:
        """Whether the snapshot only consists of overlays, so that a revert creates them again."""
        return self.memory == NO and bool(self.layers) and not self.inside


def of_pool(pool: str, volume: str) -> str:
    """The name of a volume whose path is unknown."""
    return f"{pool}/{volume}"


def location(source: ElementTree.Element | None, volume: VolumePath = of_pool) -> str | None:
    """The location of a disk's data: a path, or the name on a server. volume: returns the path of a
    volume from pool and name."""
    if source is None:
        return None
    if source.get("volume"):
        return volume(source.get("pool", ""), source.get("volume", ""))
    return source.get("file") or source.get("dev") or source.get("name")


def read(text: str, current: bool = False, volume: VolumePath = of_pool) -> SnapshotNode:
    """The SnapshotNode from libvirt's XML. volume: as for :func:`location`."""
    root = ElementTree.fromstring(text)
    memory = root.find("memory")
    bases = {}
    for disk in root.iterfind("domain/devices/disk"):
        target = disk.find("target")
        bases[target.get("dev") if target is not None else None] = location(
            disk.find("source"), volume
        )
    reverted = {
        disk.get("name", ""): location(disk.find("source"), volume)
        for disk in root.iterfind("revertDisks/disk")
        if disk.get("snapshot") == EXTERNAL
    }
    disks = []
    for disk in root.iterfind("disks/disk"):
        name, kind = disk.get("name", ""), disk.get("snapshot", NO)
        layer = location(disk.find("source"), volume) if kind == EXTERNAL else None
        disks.append(SnapshotDisk(name, kind, bases.get(name), layer, reverted.get(name)))
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
    """Whether a guest has firmware with variables. domain: its definition."""
    if domain is None:
        return False
    loader = domain.find("os/loader")
    if loader is not None and loader.get("stateless") == "yes":
        return False
    flash = loader is not None and loader.get("type") == "pflash"
    efi = domain.find("os[@firmware='efi']") is not None
    return flash or efi or domain.find("os/nvram") is not None


class SnapshotTree:
    """The snapshots of a guest, by name; each comes after its parent."""

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
        """The snapshot that the next one will be based on."""
        return next((snapshot for snapshot in self._named.values() if snapshot.current), None)

    def newest_first(self) -> list[str]:
        """All names; children come before their parents."""
        return list(reversed(self._named))

    def descendants(self, name: str) -> set[str]:
        """The names of all descendants of a snapshot."""
        names = {name}
        for snapshot in self._named.values():
            if snapshot.parent in names:
                names.add(snapshot.name)
        return names - {name}

    def ancestors(self, name: str) -> set[str]:
        """The names of all ancestors of a snapshot."""
        names: set[str] = set()
        parent = self._named[name].parent
        while parent in self._named and parent not in names:
            names.add(parent)
            parent = self._named[parent].parent
        return names

    def with_children(self, names: Collection[str]) -> set[str]:
        """These snapshots and all their descendants."""
        return {*names}.union(*map(self.descendants, names))

    def below(self, layer: str) -> set[str]:
        """The backing files of an overlay, as far as the snapshots contain them."""
        disks = [disk for snapshot in self._named.values() for disk in snapshot.disks]
        bases = {disk.layer: disk.base for disk in disks if disk.layer and disk.base}
        places: set[str] = set()
        while layer in bases and bases[layer] not in places:
            layer = bases[layer]
            places.add(layer)
        return places
