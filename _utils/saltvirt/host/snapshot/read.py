"""A guest and its snapshots, read from libvirt for the rules of ``saltvirt.snapshot``."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from xml.etree import ElementTree

from saltvirt.host.connection import libvirt
from saltvirt.host.storage import files
from saltvirt.snapshot import rules
from saltvirt.snapshot import tree as model

# the rules are those of QEMU's disks
_DRIVER = "QEMU"


def oldest_first(domain: libvirt.virDomain) -> list[libvirt.virDomainSnapshot]:
    """Every snapshot, each after the one that it was taken on top of."""
    return domain.listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL)


def snapshot(conn: libvirt.virConnect, one: libvirt.virDomainSnapshot) -> model.Snapshot:
    """One snapshot; volumes in it are named by their paths."""
    return model.read(one.getXMLDesc(0), one.isCurrent() == 1, functools.partial(_volume, conn))


def _volume(conn: libvirt.virConnect, pool: str, volume: str) -> str:
    return files.volume_path(conn, pool, volume) or model.of_pool(pool, volume)


def tree(conn: libvirt.virConnect, domain: libvirt.virDomain) -> model.Tree:
    """The snapshots of a guest."""
    return model.Tree(snapshot(conn, one) for one in oldest_first(domain))


def guest(conn: libvirt.virConnect, domain: libvirt.virDomain) -> rules.Guest:
    """What of the guest its snapshots depend on."""
    root = files.trees(domain)[0]
    ours = conn.getType() == _DRIVER
    return rules.Guest(
        name=domain.name(),
        running=bool(domain.isActive()),
        memory_kib=int(domain.info()[2]),
        variables=ours and model.has_variables(root),
        tpm=root.find("devices/tpm/backend[@type='emulator']") is not None,
        disks=tuple(_disks(conn, root)) if ours else (),
    )


def _disks(conn: libvirt.virConnect, root: ElementTree.Element) -> Iterator[rules.GuestDisk]:
    """The disks that the guest may write to."""
    for node in root.iterfind("devices/disk"):
        source, target = node.find("source"), node.find("target")
        if source is None or target is None or node.find("readonly") is not None:
            continue
        if node.get("device", "disk") != "disk":
            continue
        path = source.get("file") or source.get("dev")
        if source.get("volume"):
            path = files.volume_path(conn, source.get("pool"), source.get("volume"))
        yield rules.GuestDisk(
            target=target.get("dev", ""),
            kind=node.get("type", "file"),
            format=files.declared(node),
            path=path,
            regular=path is not None and files.is_regular(path),
            place=model.place(source, functools.partial(_volume, conn)),
        )
