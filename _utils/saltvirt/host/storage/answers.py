"""Whether storage answers that libvirt is about to look at. libvirtd itself would wait for ever, in
a lock on the pool or the guest, and with it everybody who asks it for the same.

Each function raises bounded.Silent where it does not; what else is wrong libvirt says by itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from xml.etree import ElementTree

from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.storage import bounded_io

_SECTOR = 512


def _probe(question: Callable[..., object], *arguments: object) -> None:
    try:
        question(*arguments)
    except bounded_io.StorageTimeout:
        raise
    except (OSError, ValueError):
        pass


def path(path: str) -> None:
    """A file or a block device."""
    if path.startswith("/"):
        _probe(bounded_io.head, path, _SECTOR)


def pool(pool: libvirt.virStoragePool) -> None:
    """The folder of a virStoragePool of this host, and the devices that it is made of."""
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
    """The file or the block device of a virStorageVol of this host."""
    if connection.is_local(volume.connect()):
        path(volume.path())


def disks(conn: libvirt.virConnect, trees: Iterable[ElementTree.Element]) -> bool:
    """Whether all answers that the disks in a domain's parsed definitions are on."""
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
