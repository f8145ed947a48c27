"""Queries of libvirt's capabilities on this host."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.design import caps
from saltvirt.host.capabilities import domain_caps, guest_caps, host_caps
from saltvirt.host.connection import libvirt, translate
from saltvirt.xml import tree


def host(conn: libvirt.virConnect) -> dict[str, Any]:
    """Return the host and guest capabilities; see ``virt.capabilities``."""
    return _host(ElementTree.fromstring(conn.getCapabilities()))


def domain(
    conn: libvirt.virConnect,
    emulator: str | None = None,
    arch: str | None = None,
    machine: str | None = None,
    virttype: str | None = None,
) -> dict[str, Any]:
    """Return the capabilities of one combination; libvirt chooses values that are None."""
    text = conn.getDomainCapabilities(emulator, arch, machine, virttype, 0)
    return domain_caps.parse(ElementTree.fromstring(text))


def everything(conn: libvirt.virConnect) -> dict[str, Any]:
    """Return the host capabilities, and the domain capabilities of each architecture and type.

    A combination that libvirt does not support gets an ``error`` entry.
    """
    root = ElementTree.fromstring(conn.getCapabilities())
    combinations = [
        (kind.findtext("emulator") or arch.findtext("emulator"), arch.get("name"), kind.get("type"))
        for arch in root.iterfind("guest/arch")
        for kind in arch.findall("domain")
    ]
    domains = [_domain_or_error(conn, *combination) for combination in dict.fromkeys(combinations)]
    return {"host": _host(root), "domains": domains}


def cpu_baseline(
    conn: libvirt.virConnect, full: bool = False, migratable: bool = False
) -> ElementTree.Element:
    """Return the baseline ``<cpu>`` element of this host.

    full: list every feature, not only those beyond the model. migratable: omit features that cannot
    be migrated.
    """
    cpu = ElementTree.fromstring(conn.getCapabilities()).find("host/cpu")
    if cpu is None:
        raise errors.Unsupported("libvirt does not describe this host's CPU")
    flags = libvirt.VIR_CONNECT_BASELINE_CPU_MIGRATABLE if migratable else 0
    if full:
        flags |= libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
    definition = ElementTree.tostring(cpu, encoding="unicode")
    return ElementTree.fromstring(conn.baselineCPU([definition], flags))


def preferred_type(conn: libvirt.virConnect) -> str:
    """Return the preferred domain type of this host, KVM first. Raises Unsupported."""
    virt_types = caps.parse(conn.getCapabilities()).virt_types
    if not virt_types:
        raise errors.Unsupported(f"libvirt can run no guest on {conn.getHostname()}")
    return virt_types[0]


def _host(root: ElementTree.Element) -> dict[str, Any]:
    return {
        "host": host_caps.parse(tree.child(root, "host")),
        "guests": [guest_caps.parse(guest) for guest in root.findall("guest")],
    }


def _domain_or_error(
    conn: libvirt.virConnect, emulator: str | None, arch: str | None, virttype: str | None
) -> dict[str, Any]:
    try:
        return domain(conn, emulator, arch, None, virttype)
    except libvirt.libvirtError as exc:
        return {
            "emulator": emulator,
            "arch": arch,
            "domain": virttype,
            "machine": None,
            "error": str(translate(exc)),
        }
