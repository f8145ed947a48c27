"""Arguments that can only apply to a single guest."""

from __future__ import annotations

from typing import Any

# arguments with dictionaries: their keys
_KEYS = {
    "interfaces": ("mac", "addresses", "target", "hostdev"),
    "disks": ("source_file", "source", "wwn"),
    "graphics": ("port", "tls_port"),
    "vsock": ("cid",),
    "serials": ("port", "path", "log_file"),
    "consoles": ("port", "path", "log_file"),
    "config": ("id",),
}
_ARGUMENTS = ("pub_key", "priv_key", "host_devices")
# keys of a disk that several guests may have
_SHARED = ("read_only", "shareable")
_MEDIA = ("cdrom", "floppy")


def unique_arguments(arguments: dict[str, Any]) -> list[str]:
    """The arguments of ``virt.init`` that can only apply to a single guest, such as
    ``interfaces: mac``."""
    result = [word for word in _ARGUMENTS if arguments.get(word)]
    for word, keys in _KEYS.items():
        argument = arguments.get(word)
        parts = argument if isinstance(argument, list) else [argument]
        dict_parts = [part for part in parts if isinstance(part, dict) and not _is_shared(part)]
        result += [f"{word}: {key}" for key in keys if any(part.get(key) for part in dict_parts)]
    return result


def _is_shared(part: dict[str, Any]) -> bool:
    return part.get("device") in _MEDIA or any(part.get(key) for key in _SHARED)
