"""The disks of a domain, as the decisions of a migration want them."""

import json
import os

from saltvirt import errors
from saltvirt.images import tools

_SOURCE = ("file", "dev", "name", "volume", "dir")


def read(root):
    """A list of disks, see saltvirt.migration.storage.

    root: the domain's XML as an Element. Sizes and backing files come from the files
    themselves, read without taking their locks.
    """
    return [_disk(element) for element in root.iterfind("devices/disk")]


def _disk(element):
    found = {
        "target": element.find("target").get("dev"),
        "device": element.get("device", "disk"),
        "type": element.get("type"),
        "source": path(element.find("source")),
        "format": format_of(element),
        "cache": _driver(element, "cache", ""),
        "discard": _driver(element, "discard", ""),
        "read_only": element.find("readonly") is not None,
        "shareable": element.find("shareable") is not None,
        "size_bytes": 0,
        "used_bytes": 0,
        "chain": [],
    }
    if found["source"] and found["type"] in ("file", "block") and not found["read_only"]:
        first, *found["chain"] = images(found["source"], found["format"])
        found.update({k: first[k] for k in ("size_bytes", "used_bytes", "file_bytes")})
    return found


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
    """The image and what it stands on: dicts of path, format, sizes; nearest first."""
    argv = ["qemu-img", "info", "-U", "--output=json", "--backing-chain", "-f", format, path]
    out = tools.run(argv, f"read {path}", errors.OperationFailed, timeout_s=60)
    return [_image(info) for info in json.loads(out)]


def _image(info):
    path = os.path.normpath(info["filename"])
    size = info["virtual-size"]
    used = info.get("actual-size")
    return {
        "path": path,
        "format": info["format"],
        "size_bytes": size,
        "used_bytes": size if used is None else used,
        "file_bytes": os.path.getsize(path) if os.path.isfile(path) else size,
    }
