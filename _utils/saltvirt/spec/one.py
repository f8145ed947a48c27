"""What of a guest's arguments can be one guest's alone."""

from __future__ import annotations

from typing import Any

# of parts: their keys
_KEYS = {
    "interfaces": ("mac", "addresses", "target"),
    "disks": ("source_file", "source", "wwn"),
    "graphics": ("port", "tls_port"),
    "serials": ("port", "path", "log_file"),
    "consoles": ("port", "path", "log_file"),
    "config": ("id",),
}
_WHOLE = ("pub_key", "priv_key", "host_devices")
# a disk that several may have
_SHARED = ("read_only", "shareable")
_MEDIA = ("cdrom", "floppy")


def guests_own(arguments: dict[str, Any]) -> list[str]:
    """What there is of it in the arguments of ``virt.init``, such as ``interfaces: mac``."""
    found = [word for word in _WHOLE if arguments.get(word)]
    for word, keys in _KEYS.items():
        given = arguments.get(word)
        parts = given if isinstance(given, list) else [given]
        own = [part for part in parts if isinstance(part, dict) and not _of_many(part)]
        found += [f"{word}: {key}" for key in keys if any(part.get(key) for part in own)]
    return found


def _of_many(part: dict[str, Any]) -> bool:
    return part.get("device") in _MEDIA or any(part.get(key) for key in _SHARED)
