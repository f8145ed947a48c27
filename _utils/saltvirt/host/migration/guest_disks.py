"""The disks of a domain, as the decisions of a migration want them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import replace
from typing import Any
from xml.etree.ElementTree import Element

from saltvirt.host.connection import libvirt
from saltvirt.host.migration import block_devices, shared_folders, volumes
from saltvirt.host.storage import files
from saltvirt.images import chain, confined
from saltvirt.migration import storage
from saltvirt.migration.facts import (
    BackingFile,
    DiskReport,
    NetworkSource,
    PoolReport,
    Server,
    VolumeIdentity,
)

_SOURCE = ("file", "dev", "name", "volume", "dir")


def read(
    root: Element,
    conn: libvirt.virConnect,
    own: Collection[str] = (),
    but: Element | None = None,
) -> tuple[DiskReport, ...]:
    """The disks of a domain.

    root: the domain's XML as an Element; conn: of its host; own: real paths of the guest's own
    files. Sizes and backing files come from the files themselves, read without taking their locks.
    but: the XML of a domain whose disks, and drives without a medium, are left out.
    """
    known = {_place(disk) for disk in but.iterfind("devices/disk")} if but is not None else set()
    found = [
        _disk(element, conn)
        for element in root.iterfind("devices/disk")
        if but is None or (any(_place(element)) and _place(element) not in known)
    ]
    return tuple(
        _seed(
            replace(disk, chain=tuple(replace(b, own=_is_own(b.path, own)) for b in disk.chain)),
            own,
        )
        for disk in found
    )


def _seed(disk: DiskReport, own: Collection[str]) -> DiskReport:
    """The disk, marked where it is the volume for cloud-init that was made for the guest."""
    place = disk.source or ""
    in_seeds = os.path.basename(os.path.dirname(place)) == storage.SEED_FOLDER
    if disk.type != "file" or not disk.read_only or disk.trouble or not in_seeds:
        return disk
    if files.real(place) not in own or not os.path.isfile(place):
        return disk
    return replace(disk, seed=True, used_bytes=os.path.getsize(place))


def _place(disk: Element) -> tuple[str, ...]:
    """What a disk's medium is, without its format and its options."""
    source = disk.find("source")
    found = {} if source is None else source.attrib
    local = [files.real(found[word]) for word in ("file", "dev", "dir") if found.get(word)]
    return (*local, *(found.get(word, "") for word in ("pool", "volume", "protocol", "name")))


def _is_own(path: str, own: Collection[str]) -> bool:
    return files.real(path) in own and not storage.by_content(path)


def before(root: Element) -> set[str]:
    """The paths of the disks on which a snapshot set an overlay. root: the snapshot's XML."""
    outside = {
        disk.get("name")
        for disk in root.iterfind("disks/disk")
        if disk.get("snapshot") == "external"
    }
    found = {
        path(disk.find("source"))
        for disk in root.iterfind("domain/devices/disk")
        if _target(disk) in outside
    }
    return set(filter(None, found))


def _target(disk: Element) -> str:
    target = disk.find("target")
    return "" if target is None else target.get("dev", "")


def of_snapshot(root: Element) -> set[str]:
    """Every file of an external snapshot: what its disks were, their overlays, its memory."""
    found = {
        path(disk.find("source"))
        for disk in root.iterfind("disks/disk")
        if disk.get("snapshot") == "external"
    }
    memory = root.find("memory")
    found.add(memory.get("file") if memory is not None else None)
    return before(root).union(filter(None, found))


def _disk(element: Element, conn: libvirt.virConnect) -> DiskReport:
    source = element.find("source")
    found = DiskReport(
        target=_target(element),
        device=element.get("device", "disk"),
        type=element.get("type", ""),
        source=path(source),
        format=format_of(element),
        cache=_driver(element, "cache", ""),
        discard=_driver(element, "discard", ""),
        read_only=element.find("readonly") is not None,
        shareable=element.find("shareable") is not None,
        encrypted=element.find(".//encryption") is not None,
    )
    if source is not None and found.source and found.type == "volume":
        found = _volume(conn, found, source)
    elif source is not None and found.type == "network":
        found = replace(found, network=_network(source))
    return _looked(found, conn)


def _volume(conn: libvirt.virConnect, disk: DiskReport, source: Element) -> DiskReport:
    direct = source.get("mode") == "direct"
    named = replace(disk, pool=PoolReport(source.get("pool")), volume=source.get("volume"))
    return volumes.local(conn, named, direct)


def _network(source: Element) -> NetworkSource:
    hosts = source.iterfind("host")
    return NetworkSource(
        source.get("protocol"),
        source.get("name"),
        tuple(Server(h.get("name"), h.get("port"), h.get("transport")) for h in hosts),
    )


def _looked(disk: DiskReport, conn: libvirt.virConnect) -> DiskReport:
    """With what the disk's file or device tells of itself."""
    path = disk.source
    if not path or not disk.is_local or disk.trouble:
        return disk
    if shared_folders.is_hidden(path):
        return replace(disk, trouble=shared_folders.HIDDEN)
    if disk.type == "file":
        disk = replace(disk, fs=shared_folders.file_system(path))
    elif disk.identity is None:
        device = block_devices.identity(conn, path)
        disk = replace(disk, identity=VolumeIdentity(device=device))
    if disk.read_only:
        return disk
    first, *below = images(path, disk.format)
    for image in (first, *below):
        if image.data_file:
            trouble = (
                f"{image.path} keeps its data in another file, {image.data_file}: convert it "
                "to one without (qemu-img convert)"
            )
            return replace(disk, trouble=trouble)
    # of a device qemu-img says that it takes no space
    used_bytes = first.size_bytes if disk.type == "block" else first.used_bytes
    return replace(disk, chain=tuple(below), size_bytes=first.size_bytes, used_bytes=used_bytes)


def _driver(element: Element, name: str, default: str) -> str:
    driver = element.find("driver")
    return driver.get(name, default) if driver is not None else default


def format_of(element: Element) -> str:
    """The format that the domain declares for a disk; without one libvirt takes raw."""
    return _driver(element, "type", "raw")


def path(source: Element | None) -> str | None:
    """What a ``source`` element names, or None."""
    if source is None:
        return None
    return next((source.get(name) for name in _SOURCE if source.get(name)), None)


def images(path: str, format: str) -> list[BackingFile]:
    """The image and what it is based on, nearest first. Raises ImageError or OperationFailed."""
    argv = ["qemu-img", "info", "-U", "--output=json", "--backing-chain", "-f", format, path]
    out = confined.run(argv, f"read {path}", reads=chain.names(path, format))
    return [_image(info) for info in json.loads(out)]


def _image(info: dict[str, Any]) -> BackingFile:
    path = os.path.normpath(info["filename"])
    size = info["virtual-size"]
    used = info.get("actual-size")
    return BackingFile(
        path=path,
        fs=shared_folders.file_system(path),
        format=info["format"],
        size_bytes=size,
        used_bytes=size if used is None else used,
        file_bytes=os.path.getsize(path) if os.path.isfile(path) else size,
        data_file=info.get("format-specific", {}).get("data", {}).get("data-file"),
    )
