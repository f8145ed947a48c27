"""MAC addresses for the interfaces of a guest: no two interfaces share one."""

from __future__ import annotations

import contextlib
import itertools
import secrets
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt.host.connection import libvirt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from saltvirt.xml.interface import Interface

# the range that QEMU and libvirt use
_PREFIX = "52:54:00"


def taken(conn: libvirt.virConnect) -> set[str]:
    """The MACs of all domains on this host, as they run and as they are stored, in lower case."""
    found: set[str] = set()
    for dom in conn.listAllDomains():
        with contextlib.suppress(libvirt.libvirtError):  # it was undefined meanwhile
            for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
                tree = ElementTree.fromstring(dom.XMLDesc(flags))
                macs = tree.iterfind("devices/interface/mac")
                found.update(mac.get("address", "").lower() for mac in macs)
    return found


def fresh(conn: libvirt.virConnect, number: int) -> list[str]:
    """So many MACs that no interface on this host has."""
    if not number:
        return []
    used = taken(conn)
    return list(itertools.islice((mac for mac in _random() if mac not in used), number))


def pairs(interfaces: Iterable[Interface], new: Iterable[str]) -> dict[str, str]:
    """{MAC that an interface has, in lower case: its new one}, both in one order."""
    old = ((nic.mac or "").lower() for nic in interfaces)
    return dict(zip(old, new, strict=True))


def _random() -> Iterator[str]:
    seen: set[str] = set()
    while True:
        mac = ":".join([_PREFIX, *(f"{byte:02x}" for byte in secrets.token_bytes(3))])
        if mac not in seen:
            seen.add(mac)
            yield mac
