"""Disks of a guest to which a copy of the guest on another host could write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.host.storage import files, usage

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    import libvirt


def shared_disks(dom: libvirt.virDomain) -> dict[str, str]:
    """Return {disk: why other hosts may reach it} for the guest's writable disks."""
    conn, reasons = dom.connect(), dict[str, str]()
    for node in (
        disk_node for tree in files.trees(dom) for disk_node in tree.iterfind("devices/disk")
    ):
        source = node.find("source")
        if source is None or node.find("readonly") is not None:
            continue
        path, reason = _path_and_reason(conn, source)
        if reason:
            reasons[path] = reason
    return reasons


def _path_and_reason(conn: libvirt.virConnect, source: Element) -> tuple[str, str | None]:
    """Return (path of a disk, why other hosts may reach it or None)."""
    path = files.source_path(conn, source)
    if source.get("volume") and path is None:
        name = f"{source.get('pool')}/{source.get('volume')}"
        return name, "its storage pool or volume does not exist"
    path = path or source.get("name") or "unnamed"
    return path, usage.others_may_have(conn, path)
