"""The disks of a domain, as the decisions of a migration want them."""

import json
import os

from saltvirt.host.migration import block_devices, shared_folders, volumes
from saltvirt.host.storage import files
from saltvirt.images import chain, confined
from saltvirt.migration import storage

_SOURCE = ("file", "dev", "name", "volume", "dir")
_LOCAL = ("file", "block")


def read(root, conn, own=()):
    """A list of disks, see saltvirt.migration.storage.

    root: the domain's XML as an Element; conn: of its host; own: real paths of the guest's own
    files. Sizes and backing files come from the files themselves, read without taking their locks.
    """
    found = [_disk(element, conn) for element in root.iterfind("devices/disk")]
    for base in (base for disk in found for base in disk["chain"]):
        base["own"] = files.real(base["path"]) in own and not storage.by_content(base["path"])
    return found


def before(root):
    """The paths of the disks on which a snapshot set an overlay. root: the snapshot's XML."""
    outside = {
        disk.get("name")
        for disk in root.iterfind("disks/disk")
        if disk.get("snapshot") == "external"
    }
    found = {
        path(disk.find("source"))
        for disk in root.iterfind("domain/devices/disk")
        if disk.find("target").get("dev") in outside
    }
    return found - {None}


def of_snapshot(root):
    """Every file of an external snapshot: what its disks were, their overlays, its memory."""
    found = {
        path(disk.find("source"))
        for disk in root.iterfind("disks/disk")
        if disk.get("snapshot") == "external"
    }
    memory = root.find("memory")
    found.add(memory.get("file") if memory is not None else None)
    return before(root) | found - {None}


def _disk(element, conn):
    source = element.find("source")
    found = {
        "target": element.find("target").get("dev"),
        "device": element.get("device", "disk"),
        "type": element.get("type"),
        "source": path(source),
        "format": format_of(element),
        "cache": _driver(element, "cache", ""),
        "discard": _driver(element, "discard", ""),
        "read_only": element.find("readonly") is not None,
        "shareable": element.find("shareable") is not None,
        "size_bytes": 0,
        "used_bytes": 0,
        "chain": [],
    }
    if found["type"] == "volume" and found["source"]:
        found.update(_volume(conn, source))
    elif found["type"] == "network" and source is not None:
        found["network"] = _network(source)
    if found["source"] and found["type"] in _LOCAL and not found.get("trouble"):
        _look(found, conn)
    return found


def _volume(conn, source):
    direct = source.get("mode") == "direct"
    named = {"name": source.get("pool"), "type": "", "source": {}}
    found = volumes.local(conn, source.get("pool"), source.get("volume"), direct)
    return {"pool": named, **found, "volume": source.get("volume")}


def _network(source):
    """Where a disk of ``type='network'`` comes from, see saltvirt.migration.shared."""
    known = ("name", "port", "transport")
    hosts = [{key: host.get(key) for key in known} for host in source.iterfind("host")]
    return {"protocol": source.get("protocol"), "name": source.get("name"), "hosts": hosts}


def _look(found, conn):
    """Adds what the disk's file or device tells of itself."""
    if shared_folders.is_hidden(found["source"]):
        found["trouble"] = shared_folders.HIDDEN
        return
    if found["type"] == "file":
        found["fs"] = shared_folders.file_system(found["source"])
    else:
        found.setdefault("identity", {"device": block_devices.identity(conn, found["source"])})
    if found["read_only"]:
        return
    all_images = images(found["source"], found["format"])
    for image in all_images:
        if image["data_file"]:
            found["trouble"] = (
                f"{image['path']} keeps its data in another file, {image['data_file']}: convert it "
                "to one without (qemu-img convert)"
            )
            return
    first, *found["chain"] = all_images
    found.update({k: first[k] for k in ("size_bytes", "used_bytes", "file_bytes")})
    if found["type"] == "block":  # qemu-img says that it takes no space
        found["used_bytes"] = found["size_bytes"]


def _driver(element, name, default):
    driver = element.find("driver")
    return driver.get(name, default) if driver is not None else default


def format_of(element):
    """The format that the domain declares for a disk; without one libvirt takes raw."""
    return _driver(element, "type", "raw")


def path(source):
    """What a ``source`` element names, or None."""
    if source is None:
        return None
    return next((source.get(name) for name in _SOURCE if source.get(name)), None)


def images(path, format):
    """The image and what it stands on: dicts of path, format, sizes, and the file
    that holds its data instead, or None; nearest first."""
    argv = ["qemu-img", "info", "-U", "--output=json", "--backing-chain", "-f", format, path]
    out = confined.run(argv, f"read {path}", reads=chain.names(path, format))
    return [_image(info) for info in json.loads(out)]


def _image(info):
    path = os.path.normpath(info["filename"])
    size = info["virtual-size"]
    used = info.get("actual-size")
    return {
        "path": path,
        "fs": shared_folders.file_system(path),
        "format": info["format"],
        "size_bytes": size,
        "used_bytes": size if used is None else used,
        "file_bytes": os.path.getsize(path) if os.path.isfile(path) else size,
        "data_file": info.get("format-specific", {}).get("data", {}).get("data-file"),
    }
