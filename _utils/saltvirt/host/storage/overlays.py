"""Guests that write to the backing files of other guests' disks, which damages those disks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.storage import chains, files, identity
from saltvirt.rights import confidential

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from saltvirt.host.storage.identity import Key


@dataclass(frozen=True)
class Overlay:
    """A disk with a backing file.

    guest: the owner of the disk.
    """

    guest: str
    path: str


class Bases:
    """Keys of backing files, with a cache for files that several disks share."""

    def __init__(self) -> None:
        # including backing files; without a format, only those of the file itself
        self._keys_by_ref: dict[chains.ImageRef, frozenset[Key]] = {}

    def keys_of(self, path: str, format: str | None) -> frozenset[Key]:
        """Return the keys of all backing files of a disk, without those of the disk itself."""
        return self._all(
            chains.direct_references(path, format), lambda part: chains.read(*part).paths
        )

    def of_paths(self, paths: Iterable[str]) -> frozenset[Key]:
        """Return the keys of a complete list of backing files."""
        return self._all([(path, None) for path in paths], lambda part: [part[0]])

    def _all(
        self, parts: Iterable[chains.ImageRef], paths: Callable[[chains.ImageRef], Iterable[str]]
    ) -> frozenset[Key]:
        all_keys: set[Key] = set()
        for part in parts:
            if part not in self._keys_by_ref:
                path_keys = (key for path in paths(part) for key in identity.keys_of(path))
                self._keys_by_ref[part] = frozenset(path_keys)
            all_keys |= self._keys_by_ref[part]
        return frozenset(all_keys)


def base_keys(path: str, format: str | None) -> frozenset[Key]:
    """Return the keys of all backing files of a disk, without those of the disk itself."""
    return Bases().keys_of(path, format)


def written_paths(conn: libvirt.virConnect, dom: libvirt.virDomain) -> dict[Key, str]:
    """Return {key: path} of the disks to which a domain writes now or after its next start."""
    paths = {path for tree in files.trees(dom) for path in files.writable(conn, tree)}
    return {key: path for path in sorted(paths) for key in identity.keys_of(path)}


def overlay_on(
    conn: libvirt.virConnect, keys: Collection[Key], exclude_name: str = ""
) -> Overlay | None:
    """Return a disk of another domain that is based on one of these keys, or None.

    exclude_name: name of a domain to ignore. Disks that cannot be read count as having no backing
    file.
    """
    read = Bases()
    for dom in conn.listAllDomains():
        with connection.skip_undefined():
            for path, base in _disk_bases(conn, dom, read) if dom.name() != exclude_name else ():
                if not base.isdisjoint(keys):
                    return Overlay(dom.name(), path)
    return None


def refuse_start(conn: libvirt.virConnect, dom: libvirt.virDomain) -> None:
    """Raise Refused for a guest that would write to the backing file of another guest's disk.

    A disk that cannot be read does not prevent the start here; libvirt itself then fails to start.
    """
    if not connection.is_local(conn):
        return
    with connection.translated(f"start {dom.name()}"):
        write_keys = written_paths(conn, dom)
        overlay = overlay_on(conn, write_keys.keys(), dom.name()) if write_keys else None
        if overlay:
            # the path may contain the guest's name
            overlay_label = confidential.sensitive(f"{overlay.path} of {overlay.guest}")
            raise errors.Refused(
                f"{dom.name()} writes to a disk on which the disk of another guest is based "
                f"({overlay_label}): each write would damage that one. Convert that disk to a full "
                "copy (qemu-img convert), or remove it from that guest"
            )


def _disk_bases(
    conn: libvirt.virConnect, dom: libvirt.virDomain, read: Bases
) -> Iterator[tuple[str, frozenset[Key]]]:
    """Yield (path, keys of its backing files) of each disk of a domain."""
    visited, is_running = set[tuple[str, str]](), dom.isActive()
    for tree in files.trees(dom):
        for node in tree.iterfind("devices/disk"):
            path, format = _path(conn, node), files.declared(node)
            if path and path.startswith("/") and (path, format) not in visited:
                visited.add((path, format))
                backing_paths = _backing_paths(node) if is_running else None
                if backing_paths is None:
                    yield path, read.keys_of(path, format)
                else:
                    yield path, read.of_paths(backing_paths)
        is_running = 0  # the second tree is that of the next start


def _backing_paths(disk: ElementTree.Element) -> list[str] | None:
    """Return the backing files that QEMU has open for a running disk; None if libvirt lists not
    all."""
    backing_paths = []
    backing_node = disk.find("backingStore")
    while backing_node is not None and backing_node.get("type"):
        source = backing_node.find("source")
        path = (source.get("file") or source.get("dev")) if source is not None else None
        if not path:
            return None
        backing_paths.append(path)
        backing_node = backing_node.find("backingStore")
    return None if backing_node is None else backing_paths


def _path(conn: libvirt.virConnect, node: ElementTree.Element) -> str | None:
    source = node.find("source")
    return files.source_path(conn, source) if source is not None else None
