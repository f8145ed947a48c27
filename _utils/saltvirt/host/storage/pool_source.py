"""Pool types, and direct sources for volumes that libvirt cannot address by pool."""

from __future__ import annotations

import contextlib
import posixpath
from xml.etree import ElementTree

from saltvirt.design.source import Source
from saltvirt.host.connection import libvirt
from saltvirt.spec.disk import AuthSpec, HostSpec, NetworkSourceSpec
from saltvirt.xml import tree

SERVERS = ("rbd", "gluster", "sheepdog")
_FILES = ("dir", "fs", "netfs")


def type_of(pool: libvirt.virStoragePool) -> str | None:
    """Return libvirt's type of a pool."""
    return ElementTree.fromstring(pool.XMLDesc()).get("type")


def direct(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, volume: str, xen: bool = False
) -> Source | None:
    """Return the Source that addresses a volume by server or path; None if the pool can be used.

    volume: name of the volume, which need not exist yet. xen: for a Xen guest, whose driver does
    not support pools.
    """
    root = ElementTree.fromstring(pool.XMLDesc())
    kind = root.get("type")
    if kind in SERVERS:
        return _on_server(conn, kind, tree.child(root, "source"), volume)
    folder = root.findtext("target/path")
    if folder and (xen or kind == "mpath"):
        path = posixpath.join(folder, volume)
        return Source(path=path, block=kind not in _FILES, direct=True)
    return None


def _on_server(
    conn: libvirt.virConnect, kind: str, source: ElementTree.Element, volume: str
) -> Source:
    hosts = [
        HostSpec(name=host.get("name"), port=int(port) if (port := host.get("port")) else None)
        for host in source.findall("host")
    ]
    parent_name = source.findtext("name") if kind != "sheepdog" else None
    folder = source.find("dir")
    folder_path = (folder.get("path") or "").strip("/") if folder is not None else ""
    parts = [parent_name, folder_path, volume]
    name, auth = "/".join(part for part in parts if part), _auth(conn, source.find("auth"))
    server = NetworkSourceSpec(protocol=kind, name=name, hosts=hosts, auth=auth)
    return Source(server=server, direct=True)


def _auth(conn: libvirt.virConnect, node: ElementTree.Element | None) -> AuthSpec | None:
    """Return the secret by its usage, which is the same on all hosts, or else by its UUID."""
    if node is None:
        return None
    secret = tree.child(node, "secret")
    usage, uuid = secret.get("usage"), secret.get("uuid")
    if not usage and uuid:
        with contextlib.suppress(libvirt.libvirtError):
            usage = conn.secretLookupByUUIDString(uuid).usageID()
    return AuthSpec(
        username=node.get("username"), type="ceph", usage=usage, uuid=None if usage else uuid
    )
