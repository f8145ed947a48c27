"""Check that storage responds before libvirt accesses it.

libvirtd would wait forever, holding a lock on the pool or the domain, and block every other request
for it. Each function raises bounded_io.StorageTimeout if the storage does not respond, and leaves
all other errors to libvirt.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from xml.etree import ElementTree

from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.system import bounded_io

_SECTOR = 512


def _probe(question: Callable[..., object], *arguments: object) -> None:
    try:
        question(*arguments)
    except bounded_io.StorageTimeout:
        raise
    except (OSError, ValueError):
        pass


def path(path: str) -> None:
    """Probe a file or a block device."""
    if path.startswith("/"):
        _probe(bounded_io.head, path, _SECTOR)


def pool(pool: libvirt.virStoragePool) -> None:
    """Probe the target folder and the source devices of a virStoragePool on this host."""
    if not connection.is_local(pool.connect()):
        return
    tree = ElementTree.fromstring(pool.XMLDesc(0))
    target = os.path.normpath(tree.findtext("target/path") or "/dev")
    if f"{target}/".startswith("/") and not f"{target}/".startswith("/dev/"):
        _probe(bounded_io.room, target)
        _probe(bounded_io.names, target, 0)
    for device in tree.iterfind("source/device"):
        path(device.get("path") or "")


def volume(volume: libvirt.virStorageVol) -> None:
    """Probe the file or block device of a virStorageVol on this host."""
    if connection.is_local(volume.connect()):
        path(volume.path())


def disks(conn: libvirt.virConnect, trees: Iterable[ElementTree.Element]) -> bool:
    """Return whether all disk sources in the parsed domain definitions respond."""
    try:
        for source in (node for tree in trees for node in tree.iterfind("devices/disk/source")):
            if source.get("volume"):
                with contextlib.suppress(libvirt.libvirtError):
                    pool_object = conn.storagePoolLookupByName(source.get("pool", ""))
                    volume(pool_object.storageVolLookupByName(source.get("volume", "")))
            elif connection.is_local(conn):
                path(source.get("file") or source.get("dev") or "")
    except bounded_io.StorageTimeout:
        return False
    return True
