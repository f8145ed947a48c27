"""The huge pages that this host keeps, which no other memory is made of."""

from __future__ import annotations

import os
from xml.etree.ElementTree import Element

_MEMINFO = "/proc/meminfo"


def huge_pages(capabilities: Element, memory_kib: int) -> dict[int, int]:
    """{size in KiB: how many KiB of the memory are such pages} by libvirt's capabilities.

    As many as the host has memory, or more, are a driver's that makes up its host: none then.
    """
    kib_by_size: dict[int, int] = {}
    usual = os.sysconf("SC_PAGE_SIZE") // 1024
    for node in capabilities.iterfind("host/topology/cells/cell/pages"):
        size, number = int(node.get("size", 0)), int(node.text or 0)
        if size > usual and number:
            kib_by_size[size] = kib_by_size.get(size, 0) + size * number
    return kib_by_size if sum(kib_by_size.values()) < memory_kib else {}


def with_text_keys(pages: dict[int, int]) -> dict[str, int]:
    """With keys that are text, as all keys of an answer are."""
    return {str(size): kib for size, kib in pages.items()}


def default_size_kib() -> int:
    """The size of huge pages where none is named; 0 when the kernel does not tell."""
    try:
        with open(_MEMINFO, encoding="ascii") as file:
            fields = [line.split() for line in file if line.startswith("Hugepagesize:")]
    except OSError:
        return 0
    return int(fields[0][1]) if fields else 0
