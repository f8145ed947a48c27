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
    from collections.abc import Collection, Iterator

    from saltvirt.host.storage.identity import Key


@dataclass(frozen=True)
class Overlay:
    """A disk that is based on another. guest: whose it is."""

    guest: str
    path: str


def bases(path: str, format: str | None) -> set[Key]:
    """The keys of all that a disk is based on, the disk itself not among them."""
    return {key for part in chains.read(path, format).paths[1:] for key in identity.of(part)}


def written(conn: libvirt.virConnect, dom: libvirt.virDomain) -> dict[Key, str]:
    """{key: path} of the disks to which a domain writes, as it runs and as it starts next."""
    paths = {path for tree in files.trees(dom) for path in files.writable(conn, tree)}
    return {key: path for path in sorted(paths) for key in identity.of(path)}


def above(conn: libvirt.virConnect, keys: Collection[Key], but: str = "") -> Overlay | None:
    """A disk of another domain that is based on what has one of these keys. but: the name of the
    domain whose disks do not count. What cannot be read is based on nothing."""
    for dom in conn.listAllDomains():
        with connection.unless_gone():
            for path, base in _based(conn, dom) if dom.name() != but else ():
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


def _based(conn: libvirt.virConnect, dom: libvirt.virDomain) -> Iterator[tuple[str, set[Key]]]:
    """(path, keys of what it is based on) of the disks of a domain."""
    asked = set[tuple[str, str]]()
    for tree in files.trees(dom):
        for node in tree.iterfind("devices/disk"):
            path, format = _place(conn, node), files.declared(node)
            if path and path.startswith("/") and (path, format) not in asked:
                asked.add((path, format))
                yield path, bases(path, format)


def _place(conn: libvirt.virConnect, node: ElementTree.Element) -> str | None:
    source = node.find("source")
    if source is None:
        return None
    if source.get("volume"):
        return files.volume_path(conn, source.get("pool"), source.get("volume"))
    return source.get("file") or source.get("dev")
