"""MAC addresses of guest interfaces; each is unique on the host."""

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

# the prefix of QEMU and libvirt
_PREFIX = "52:54:00"


def used_macs(conn: libvirt.virConnect) -> set[str]:
    """Return the MACs of all domains on this host, running and stored, in lower case."""
    macs: set[str] = set()
    for dom in conn.listAllDomains():
        with contextlib.suppress(libvirt.libvirtError):  # undefined meanwhile
            macs |= _domain_macs(dom)
    return macs


def duplicates(
    conn: libvirt.virConnect, guest: str, specs: Iterable[NicSpec]
) -> list[tuple[str, str]]:
    """Return (MAC, name of the guest) for each requested MAC that another guest of this host
    has."""
    requested = {spec.mac.lower() for spec in specs if spec.mac}
    owners: list[tuple[str, str]] = []
    for dom in conn.listAllDomains() if requested else ():
        with skip_undefined():
            macs = sorted(requested & _domain_macs(dom)) if dom.name() != guest else ()
            owners += [(mac, confidential.sensitive(dom.name())) for mac in macs]
    return owners


def duplicate_warning(mac: str, guest: str) -> str:
    """Return the warning about one of these MACs."""
    return (
        f"{guest} also has an interface with the MAC {mac}: in a common network only one of the "
        "two guests can be reached"
    )


def _domain_macs(dom: libvirt.virDomain) -> set[str]:
    """Return the MACs of a domain, running and stored, in lower case."""
    macs: set[str] = set()
    for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        tree = ElementTree.fromstring(dom.XMLDesc(flags))
        macs.update(m.get("address", "").lower() for m in tree.iterfind("devices/interface/mac"))
    return macs


def generate(conn: libvirt.virConnect, number: int) -> list[str]:
    """Return ``number`` MACs that no interface on this host has."""
    if not number:
        return []
    used = used_macs(conn)
    return list(itertools.islice((mac for mac in _random() if mac not in used), number))


def pairs(interfaces: Iterable[Interface], new: Iterable[str]) -> dict[str, str]:
    """Return {old MAC in lower case: new MAC} for interfaces and MACs in the same order."""
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
    """Return a MAC derived from the guest and a name.

    The result is reproducible, so a test run predicts it, and the running guest and its definition
    agree. reserved: MACs to avoid.
    """
    for number in itertools.count():
        label = f"{name} {number}" if number else name
        digest = hashlib.sha256(f"{uuid} {label}".encode()).hexdigest()
        mac = f"{_PREFIX}:{digest[:2]}:{digest[2:4]}:{digest[4:6]}"
        if mac not in reserved:
            return mac
    raise AssertionError("count() does not end")


class MacAllocator:
    """Allocates MACs for a guest's interfaces.

    definition: its definition. specs: all NicSpecs.
    """

    def __init__(
        self, conn: libvirt.virConnect, definition: Domain, specs: Sequence[NicSpec]
    ) -> None:
        self.conn, self.uuid, self.specs = conn, definition.uuid, specs
        self.used: set[str] | None = None

    def mac(self, spec: NicSpec) -> str:
        """Return a MAC for a new interface that is neither in use on this host nor requested."""
        if self.used is None:
            self.used = used_macs(self.conn) | {
                nic_spec.mac for nic_spec in self.specs if nic_spec.mac
            }
        position = next(index for index, nic_spec in enumerate(self.specs) if nic_spec is spec)
        new_mac = derive_mac(self.uuid, spec.name or f"#{position}", self.used)
        self.used.add(new_mac)
        return new_mac

    def names(self) -> dict[str, str]:
        """Return {MAC: name} of interfaces whose MAC was derived from their name before records had
        names."""
        names = [nic_spec.name for nic_spec in self.specs if nic_spec.name]
        return {derive_mac(self.uuid, name): name for name in names}
