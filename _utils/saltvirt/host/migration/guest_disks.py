"""Read the disks of a domain for the decisions of a migration."""

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
    StorageServer,
    VolumeIdentity,
)

_SOURCE = ("file", "dev", "name", "volume", "dir")
# the disks of an external snapshot
_EXTERNAL = "disks/disk[@snapshot='external']"


def read(
    root: Element,
    conn: libvirt.virConnect,
    owned: Collection[str] = (),
    excluding: Element | None = None,
) -> tuple[DiskReport, ...]:
    """Return the disks of a domain.

    root: the domain's XML; conn: of its host; owned: real paths of the guest's own files. Sizes and
    backing files are read from the files, without taking their locks. excluding: the XML of a
    domain whose disks, and drives without a medium, are omitted.
    """
    elements = root.findall("devices/disk")
    if excluding is not None:
        excluded = {*map(_medium, excluding.iterfind("devices/disk"))}
        elements = [e for e in elements if any(_medium(e)) and _medium(e) not in excluded]
    return tuple(_mark_own(_disk(element, conn), owned) for element in elements)


def _mark_own(disk: DiskReport, owned: Collection[str]) -> DiskReport:
    """Return the disk with the guest's own backing files and cloud-init volume marked as such."""
    chain = tuple(replace(base, owned=_is_own(base.path, owned)) for base in disk.chain)
    return _seed(replace(disk, chain=chain), owned)


def _seed(disk: DiskReport, owned: Collection[str]) -> DiskReport:
    """Return the disk, marked if it is the cloud-init volume that was made for the guest."""
    medium_path = disk.source or ""
    in_seeds = os.path.basename(os.path.dirname(medium_path)) == storage.SEED_FOLDER
    if disk.type != "file" or not disk.read_only or disk.error or not in_seeds:
        return disk
    if files.real(medium_path) not in owned or not os.path.isfile(medium_path):
        return disk
    return replace(disk, seed=True, used_bytes=os.path.getsize(medium_path))


def _medium(disk: Element) -> tuple[str, ...]:
    """Return the identity of a disk's medium, without its format and options."""
    source = disk.find("source")
    attributes = {} if source is None else source.attrib
    local = [files.real(attributes[key]) for key in ("file", "dev", "dir") if attributes.get(key)]
    return (*local, *(attributes.get(key, "") for key in ("pool", "volume", "protocol", "name")))


def _is_own(path: str, owned: Collection[str]) -> bool:
    return files.real(path) in owned and not storage.by_content(path)


def overlaid_paths(root: Element) -> set[str]:
    """Return the paths of the disks on which a snapshot set an overlay. root: the snapshot's
    XML."""
    external = {disk.get("name") for disk in root.iterfind(_EXTERNAL)}
    disks = root.iterfind("domain/devices/disk")
    paths = {path(disk.find("source")) for disk in disks if _target(disk) in external}
    return set(filter(None, paths))


def _target(disk: Element) -> str:
    target = disk.find("target")
    return "" if target is None else target.get("dev", "")


def snapshot_paths(root: Element) -> set[str]:
    """Return all files of an external snapshot: the previous disks, their overlays, its memory."""
    paths = {path(source) for source in root.iterfind(f"{_EXTERNAL}/source")}
    memory = root.find("memory")
    paths.add(memory.get("file") if memory is not None else None)
    return overlaid_paths(root).union(filter(None, paths))


def _disk(element: Element, conn: libvirt.virConnect) -> DiskReport:
    source = element.find("source")
    report = DiskReport(
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
    if source is not None and report.source and report.type == "volume":
        report = _volume(conn, report, source)
    elif source is not None and report.type == "network":
        report = replace(report, network=_network(source))
    return _inspect(report, conn)


def _volume(conn: libvirt.virConnect, disk: DiskReport, source: Element) -> DiskReport:
    direct = source.get("mode") == "direct"
    pool_disk = replace(disk, pool=PoolReport(source.get("pool")), volume=source.get("volume"))
    return volumes.inspect_local(conn, pool_disk, direct)


def _network(source: Element) -> NetworkSource:
    hosts = source.iterfind("host")
    return NetworkSource(
        source.get("protocol"),
        source.get("name"),
        tuple(StorageServer(h.get("name"), h.get("port"), h.get("transport")) for h in hosts),
    )


def _inspect(disk: DiskReport, conn: libvirt.virConnect) -> DiskReport:
    """Return the disk with the details in its file or device."""
    path = disk.source
    if not path or not disk.is_local or disk.error:
        return disk
    if shared_folders.is_hidden(path):
        return replace(disk, error=shared_folders.HIDDEN)
    if disk.type == "file":
        disk = replace(disk, fs=shared_folders.file_system(path))
    elif disk.identity is None:
        device = block_devices.identity(conn, path)
        disk = replace(disk, identity=VolumeIdentity(device=device))
    if disk.read_only:
        return disk
    top, *backing = images(path, disk.format)
    for image in (top, *backing):
        if image.data_file:
            error = (
                f"{image.path} stores its data in another file, {image.data_file}: convert it "
                "to an image without one (qemu-img convert)"
            )
            return replace(disk, error=error)
    # qemu-img reports that a device uses no space
    used_bytes = top.size_bytes if disk.type == "block" else top.used_bytes
    return replace(disk, chain=tuple(backing), size_bytes=top.size_bytes, used_bytes=used_bytes)


def _driver(element: Element, name: str, default: str) -> str:
    driver = element.find("driver")
    return driver.get(name, default) if driver is not None else default


def format_of(element: Element) -> str:
    """Return the declared format of a disk; libvirt's default is raw."""
    return _driver(element, "type", "raw")


def path(source: Element | None) -> str | None:
    """Return what a ``source`` element names, or None."""
    if source is None:
        return None
    return next((source.get(name) for name in _SOURCE if source.get(name)), None)


def images(path: str, format: str) -> list[BackingFile]:
    """Return the image and its backing files, nearest first. Raises ImageError or
    OperationFailed."""
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
