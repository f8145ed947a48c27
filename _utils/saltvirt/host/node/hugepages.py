"""The huge pages that this host keeps, which no other memory is made of."""

from __future__ import annotations

import os
from xml.etree.ElementTree import Element

_MEMINFO = "/proc/meminfo"


def huge(capabilities: Element, memory_kib: int) -> dict[int, int]:
    """{size in KiB: how many KiB of the memory are such pages} by libvirt's capabilities.

    As many as the host has memory, or more, are a driver's that makes up its host: none then.
    """
    found: dict[int, int] = {}
    usual = os.sysconf("SC_PAGE_SIZE") // 1024
    for node in capabilities.iterfind("host/topology/cells/cell/pages"):
        size, number = int(node.get("size", 0)), int(node.text or 0)
        if size > usual and number:
            found[size] = found.get(size, 0) + size * number
    return found if sum(found.values()) < memory_kib else {}


def named(pages: dict[int, int]) -> dict[str, int]:
    """With keys that are text, as all keys of an answer are."""
    return {str(size): kib for size, kib in pages.items()}


def usual_kib() -> int:
    """The size of huge pages where none is named; 0 when the kernel does not tell."""
    try:
        with open(_MEMINFO, encoding="ascii") as file:
            words = [line.split() for line in file if line.startswith("Hugepagesize:")]
    except OSError:
        return 0
    return int(words[0][1]) if words else 0
