"""Huge pages of the host, which are not available as ordinary memory."""

from __future__ import annotations

import os
from xml.etree.ElementTree import Element

_MEMINFO = "/proc/meminfo"


def huge_pages(capabilities: Element, memory_kib: int) -> dict[int, int]:
    """Return {page size in KiB: KiB in such pages} from libvirt's capabilities.

    Returns nothing if they exceed the host's memory, as with a driver that simulates its host.
    """
    kib_by_size: dict[int, int] = {}
    usual = os.sysconf("SC_PAGE_SIZE") // 1024
    for node in capabilities.iterfind("host/topology/cells/cell/pages"):
        size, number = int(node.get("size", 0)), int(node.text or 0)
        if size > usual and number:
            kib_by_size[size] = kib_by_size.get(size, 0) + size * number
    return kib_by_size if sum(kib_by_size.values()) < memory_kib else {}


def with_text_keys(pages: dict[int, int]) -> dict[str, int]:
    """Return the pages with text keys, as in all answers."""
    return {str(size): kib for size, kib in pages.items()}


def default_size_kib() -> int:
    """Return the default size of huge pages, or 0 if it is unknown."""
    try:
        with open(_MEMINFO, encoding="ascii") as file:
            fields = [line.split() for line in file if line.startswith("Hugepagesize:")]
    except OSError:
        return 0
    return int(fields[0][1]) if fields else 0
