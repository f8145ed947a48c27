"""MAC addresses for the interfaces of a guest: no two interfaces share one."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import secrets
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt.host.connection import libvirt, skip_undefined
from saltvirt.rights import confidential

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from saltvirt.spec.nic import NicSpec
    from saltvirt.xml.devices.interface import Interface
    from saltvirt.xml.domain.domain import Domain

# the range that QEMU and libvirt use
_PREFIX = "52:54:00"


def used_macs(conn: libvirt.virConnect) -> set[str]:
    """The MACs of all domains on this host, as they run and as they are stored, in lower case."""
    macs: set[str] = set()
    for dom in conn.listAllDomains():
        with contextlib.suppress(libvirt.libvirtError):  # it was undefined meanwhile
            macs |= _domain_macs(dom)
    return macs


def duplicate_warnings(
    conn: libvirt.virConnect, guest: str, specs: Iterable[NicSpec]
) -> Iterator[str]:
    """A sentence for each MAC that is asked for and that another guest of this host has, too."""
    requested = {spec.mac.lower() for spec in specs if spec.mac}
    for dom in conn.listAllDomains() if requested else ():
        with skip_undefined():
            for mac in sorted(requested & _domain_macs(dom)) if dom.name() != guest else ():
                yield (
                    f"{confidential.sensitive(dom.name())} has an interface with the MAC {mac}, "
                    f"too: "
                    "in one network only one of the two guests can be reached"
                )


def _domain_macs(dom: libvirt.virDomain) -> set[str]:
    """The MACs of a domain, as it runs and as it is stored, in lower case."""
    macs: set[str] = set()
    for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        tree = ElementTree.fromstring(dom.XMLDesc(flags))
        macs.update(m.get("address", "").lower() for m in tree.iterfind("devices/interface/mac"))
    return macs


def generate(conn: libvirt.virConnect, number: int) -> list[str]:
    """So many MACs that no interface on this host has."""
    if not number:
        return []
    used = used_macs(conn)
    return list(itertools.islice((mac for mac in _random() if mac not in used), number))


def pairs(interfaces: Iterable[Interface], new: Iterable[str]) -> dict[str, str]:
    """{MAC that an interface has, in lower case: its new one}, both in one order."""
    old = ((nic.mac or "").lower() for nic in interfaces)
    return dict(zip(old, new, strict=True))


def _random() -> Iterator[str]:
    generated: set[str] = set()
    while True:
        mac = ":".join([_PREFIX, *(f"{byte:02x}" for byte in secrets.token_bytes(3))])
        if mac not in generated:
            generated.add(mac)
            yield mac


def derive_mac(uuid: str | None, name: str, reserved: Collection[str] = ()) -> str:
    """A MAC for an interface of a guest: the same whenever it is asked for, so that a test says
    what comes, and the running guest and its definition agree. reserved: MACs that it must not
    be."""
    for number in itertools.count():
        label = f"{name} {number}" if number else name
        digest = hashlib.sha256(f"{uuid} {label}".encode()).hexdigest()
        mac = f"{_PREFIX}:{digest[:2]}:{digest[2:4]}:{digest[4:6]}"
        if mac not in reserved:
            return mac
    raise AssertionError("count() does not end")


class MacAllocator:
    """The MACs of the interfaces that a guest gets. there: its definition. specs: all NicSpecs."""

    def __init__(
        self, conn: libvirt.virConnect, definition: Domain, specs: Sequence[NicSpec]
    ) -> None:
        self.conn, self.uuid, self.specs = conn, definition.uuid, specs
        self.used: set[str] | None = None

    def mac(self, spec: NicSpec) -> str:
        """The MAC of a new interface: no other one has it on this host, nor is it asked for."""
        if self.used is None:
            self.used = used_macs(self.conn) | {
                nic_spec.mac for nic_spec in self.specs if nic_spec.mac
            }
        position = next(index for index, nic_spec in enumerate(self.specs) if nic_spec is spec)
        new_mac = derive_mac(self.uuid, spec.name or f"#{position}", self.used)
        self.used.add(new_mac)
        return new_mac

    def names(self) -> dict[str, str]:
        """{MAC: name} of interfaces that got their MAC from their name, before names were
        recorded."""
        return {
            derive_mac(self.uuid, nic_spec.name): nic_spec.name
            for nic_spec in self.specs
            if nic_spec.name
        }
