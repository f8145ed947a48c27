"""Guests that write to what the disks of other guests are based on: each write damages those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import confidential, errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.storage import chains, files, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from saltvirt.host.storage.identity import Key


@dataclass(frozen=True)
class Overlay:
    """A disk that is based on another. guest: whose it is."""

    guest: str
    path: str


class Bases:
    """The keys of what disks are based on. What several disks are based on is read once."""

    def __init__(self) -> None:
        # with all that it is based on; without a format, of itself alone
        self._known: dict[chains.Part, frozenset[Key]] = {}

    def of(self, path: str, format: str | None) -> frozenset[Key]:
        """The keys of all that a disk is based on, the disk itself not among them."""
        return self._all(chains.below(path, format), lambda part: chains.read(*part).paths)

    def of_paths(self, paths: Iterable[str]) -> frozenset[Key]:
        """The keys of what is known to be the whole of what a disk is based on."""
        return self._all([(path, None) for path in paths], lambda part: [part[0]])

    def _all(
        self, parts: Iterable[chains.Part], paths: Callable[[chains.Part], Iterable[str]]
    ) -> frozenset[Key]:
        found: set[Key] = set()
        for part in parts:
            if part not in self._known:
                keys = (key for one in paths(part) for key in identity.of(one))
                self._known[part] = frozenset(keys)
            found |= self._known[part]
        return frozenset(found)


def bases(path: str, format: str | None) -> frozenset[Key]:
    """The keys of all that a disk is based on, the disk itself not among them."""
    return Bases().of(path, format)


def written(conn: libvirt.virConnect, dom: libvirt.virDomain) -> dict[Key, str]:
    """{key: path} of the disks to which a domain writes, as it runs and as it starts next."""
    paths = {path for tree in files.trees(dom) for path in files.writable(conn, tree)}
    return {key: path for path in sorted(paths) for key in identity.of(path)}


def above(conn: libvirt.virConnect, keys: Collection[Key], but: str = "") -> Overlay | None:
    """A disk of another domain that is based on what has one of these keys. but: the name of the
    domain whose disks do not count. What cannot be read is based on nothing."""
    read = Bases()
    for dom in conn.listAllDomains():
        with connection.unless_gone():
            for path, base in _based(conn, dom, read) if dom.name() != but else ():
                if not base.isdisjoint(keys):
                    return Overlay(dom.name(), path)
    return None


def refuse_start(conn: libvirt.virConnect, dom: libvirt.virDomain) -> None:
    """Raises Refused for a guest that would write to what the disk of another guest is based on.

    A disk that cannot be read refuses no start: its guest would not start either.
    """
    if not connection.is_local(conn):
        return
    with connection.translated(f"start {dom.name()}"):
        own = written(conn, dom)
        found = above(conn, own.keys(), dom.name()) if own else None
        if found:
            # a path tells the name of the guest, too
            where = confidential.part(f"{found.path} of {found.guest}")
            raise errors.Refused(
                f"{dom.name()} writes to a disk on which the disk of another guest is based "
                f"({where}): each write would damage that one. Make that disk whole (qemu-img "
                "convert), or remove it from that guest"
            )


def _based(
    conn: libvirt.virConnect, dom: libvirt.virDomain, read: Bases
) -> Iterator[tuple[str, frozenset[Key]]]:
    """(path, keys of what it is based on) of the disks of a domain."""
    asked, runs = set[tuple[str, str]](), dom.isActive()
    for tree in files.trees(dom):
        for node in tree.iterfind("devices/disk"):
            path, format = _place(conn, node), files.declared(node)
            if path and path.startswith("/") and (path, format) not in asked:
                asked.add((path, format))
                told = _told(node) if runs else None
                yield path, read.of(path, format) if told is None else read.of_paths(told)
        runs = 0  # the second tree is of the next start


def _told(disk: ElementTree.Element) -> list[str] | None:
    """The paths of what QEMU has opened below the disk of a guest that runs, as libvirt tells them;
    None where it does not tell all."""
    found = []
    below = disk.find("backingStore")
    while below is not None and below.get("type"):
        source = below.find("source")
        path = (source.get("file") or source.get("dev")) if source is not None else None
        if not path:
            return None
        found.append(path)
        below = below.find("backingStore")
    return None if below is None else found


def _place(conn: libvirt.virConnect, node: ElementTree.Element) -> str | None:
    source = node.find("source")
    if source is None:
        return None
    if source.get("volume"):
        return files.volume_path(conn, source.get("pool"), source.get("volume"))
    return source.get("file") or source.get("dev")
