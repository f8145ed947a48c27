"""Read all domains: one call for their statistics, and one XML for each domain."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup, pending_changes
from saltvirt.host.storage import answers

_NOWAIT = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT if libvirt else 0


@dataclass
class Reading:
    """The state of one domain at one moment.

    tree is None if the domain's XML could not be read; error has the reason. pending: the changes
    at its next start, None if unknown.
    """

    name: str
    stats: dict[str, Any]
    tree: ElementTree.Element | None = None
    error: str | None = None
    pending: list[str] | None = None

    @property
    def state(self) -> str:
        """The name of the state."""
        return lookup.state_name(self.stats.get("state.state"))

    @property
    def active(self) -> bool:
        """Whether it uses memory and CPUs now."""
        return self.state not in ("shutdown", "crashed")


def kinds() -> int:
    """Return the statistics to request: all except those of disks."""
    return (
        libvirt.VIR_DOMAIN_STATS_STATE
        | libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
        | libvirt.VIR_DOMAIN_STATS_BALLOON
        | libvirt.VIR_DOMAIN_STATS_VCPU
        | libvirt.VIR_DOMAIN_STATS_INTERFACE
    )


def blocks(
    conn: libvirt.virConnect,
    domains: Collection[tuple[libvirt.virDomain, Sequence[ElementTree.Element]]],
) -> dict[str, dict[str, Any]]:
    """Return libvirt's disk statistics by UUID, for pairs of a virDomain and its parsed
    definitions. Domains for whose disks libvirt would hang are omitted."""
    readable = [dom for dom, trees in domains if answers.disks(conn, trees)]
    flags = libvirt.VIR_DOMAIN_STATS_BLOCK
    pairs = conn.domainListGetStats(readable, flags, _NOWAIT) if readable else []
    return {dom.UUIDString(): block_stats for dom, block_stats in pairs}


def tree(dom: libvirt.virDomain) -> ElementTree.Element:
    """Return the domain's current XML, parsed."""
    return ElementTree.fromstring(dom.XMLDesc(0))


def _read(dom: libvirt.virDomain, stats: dict[str, Any], with_xml: bool) -> Reading:
    reading = Reading(name="", stats=stats)
    try:
        reading.name = dom.name()
        if with_xml:
            text = dom.XMLDesc(0)
            reading.tree = ElementTree.fromstring(text)
            reading.pending = pending_changes.try_for_domain(dom, text) if reading.active else []
    except libvirt.libvirtError as exc:
        reading.error = connection.translate(exc).text
    return reading


def read_all(conn: libvirt.virConnect, with_xml: bool = True) -> dict[str, Reading]:
    """Return a Reading of every domain of the host, by name.

    with_xml: also its definition, and the statistics of its disks. A domain that is busy (a long
    job) returns what is available without waiting; one that disappears or cannot be read has an
    ``error``.
    """
    readings = _readings(conn, conn.getAllDomainStats(kinds(), _NOWAIT), with_xml)
    return {r.name: r for r in sorted(readings, key=lambda r: r.name)}


def _readings(
    conn: libvirt.virConnect,
    pairs: Iterable[tuple[libvirt.virDomain, dict[str, Any]]],
    with_xml: bool,
) -> list[Reading]:
    by_uuid = {dom.UUIDString(): (dom, _read(dom, stats, with_xml)) for dom, stats in pairs}
    domains = [(dom, [entry.tree]) for dom, entry in by_uuid.values() if entry.tree is not None]
    for uuid, block_stats in blocks(conn, domains).items():
        by_uuid[uuid][1].stats.update(block_stats)
    return [reading for _, reading in by_uuid.values()]


def read_one(conn: libvirt.virConnect, name: str, with_xml: bool = True) -> Reading:
    """Return the Reading of one domain. Raises NotFound."""
    pairs = conn.domainListGetStats([lookup.lookup(conn, name)], kinds(), _NOWAIT)
    readings = _readings(conn, pairs, with_xml)
    if not readings:  # libvirt omits a domain that was undefined meanwhile
        raise errors.NotFound(f"{name} has disappeared from {conn.getHostname()}")
    return readings[0]


def read(
    conn: libvirt.virConnect, name: str | None = None, with_xml: bool = True
) -> dict[str, Reading]:
    """Return the Reading of one domain, or of all, by name."""
    if name:
        return {str(name): read_one(conn, name, with_xml)}
    return read_all(conn, with_xml)
