"""Which files and volumes domains use, down to the images they stand on."""

import contextlib
import os
import xml.etree.ElementTree as ET

from saltvirt import errors
from saltvirt.host.connection import libvirt, unless_gone
from saltvirt.images import header

_DEEPEST = 32


def real(path):
    """The path without links, so that two names of a file are one."""
    return os.path.realpath(path)


def chain(path):
    """The file and all that it stands on, as real paths, by the images' own headers."""
    found = []
    while path and real(path) not in found and len(found) < _DEEPEST:
        found.append(real(path))
        try:
            below = header.read(path).backing
        except errors.VirtError:  # no image that names others
            break
        path = below and os.path.join(os.path.dirname(real(path)), below.removeprefix("file:"))
    return found


def paths(tree):
    """Every local path that a domain's XML names as storage, firmware files included."""
    found = {
        value
        for node in tree.iter("source")
        for value in (node.get("file"), node.get("dev"))
        if value and value.startswith("/")
    }
    return found | {node.text for node in tree.iter("nvram") if node.text}


def trees(dom):
    """The domain's XML as it runs and as it starts next, parsed."""
    found = []
    for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        with unless_gone():
            found.append(ET.fromstring(dom.XMLDesc(flags)))
    return found


def volume_path(conn, pool, volume):
    """The path of a pool's volume, or None when it (or its pool) is not there."""
    try:
        return conn.storagePoolLookupByName(pool).storageVolLookupByName(volume).path()
    except libvirt.libvirtError:
        return None


def require_pool(conn, name):
    """Raises OperationFailed for a pool that is there but not started: what it holds is not
    known then."""
    with contextlib.suppress(libvirt.libvirtError):
        if not conn.storagePoolLookupByName(name).isActive():
            raise errors.OperationFailed(f"storage pool {name} is not started: start it first")


def volume_paths(conn, tree):
    """The paths of the disks that a domain's XML gives as pool and volume."""
    pairs = [(s.get("pool"), s.get("volume")) for s in tree.iter("source") if s.get("volume")]
    return {path for path in (volume_path(conn, *pair) for pair in pairs) if path}


def used_by_others(conn, uuid):
    """{real path: name of the domain that needs it}, whole chains included.

    uuid: of the domain that does not count.
    """
    found = {}
    for other in conn.listAllDomains():
        if other.UUIDString() == uuid:
            continue
        with unless_gone():
            name = other.name()
            for tree in trees(other):
                for path in paths(tree) | volume_paths(conn, tree):
                    found.update(dict.fromkeys(chain(path), name))
    return found


def writable(conn, tree):
    """The real paths of the disks that a domain may write to."""
    found = set()
    for node in tree.iterfind("devices/disk"):
        source = node.find("source")
        safe = node.find("readonly") is not None or node.find("shareable") is not None
        if source is None or safe or node.get("device", "disk") != "disk":
            continue
        path = source.get("file") or source.get("dev")
        if source.get("volume"):
            path = volume_path(conn, source.get("pool"), source.get("volume"))
        if path:
            found.add(real(path))
    return found


def is_regular(path):
    """True for a plain file of this host."""
    return os.path.isfile(path)
