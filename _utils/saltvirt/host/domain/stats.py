"""Reading all domains at once: one getAllDomainStats, and one XML for each domain."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup


@dataclass
class Reading:
    """What one domain looked like at one moment.

    tree is None when the domain's XML could not be read; error says why.
    """

    name: str
    stats: dict
    tree: ET.Element | None = None
    error: str | None = None

    @property
    def state(self):
        """The state's word."""
        return lookup.state_name(self.stats.get("state.state"))

    @property
    def active(self):
        """True when it takes memory and CPUs at this moment."""
        return self.state not in ("shutdown", "crashed")


def _kinds():
    return (
        libvirt.VIR_DOMAIN_STATS_STATE
        | libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
        | libvirt.VIR_DOMAIN_STATS_BALLOON
        | libvirt.VIR_DOMAIN_STATS_VCPU
        | libvirt.VIR_DOMAIN_STATS_INTERFACE
        | libvirt.VIR_DOMAIN_STATS_BLOCK
    )


def tree(dom):
    """The domain's XML as it is now, parsed."""
    return ET.fromstring(dom.XMLDesc(0))


def _read(dom, stats, with_xml):
    reading = Reading(name="", stats=stats)
    try:
        reading.name = dom.name()
        if with_xml:
            reading.tree = tree(dom)
    except libvirt.libvirtError as exc:
        reading.error = connection.translate(exc).text
    return reading


def read_all(conn, with_xml=True):
    """Readings of every domain of the host, by name.

    A domain that is busy (a long job) gives what it can without being waited for; one
    that vanishes meanwhile, or cannot be read, has an ``error``.
    """
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    pairs = conn.getAllDomainStats(_kinds(), flags)
    readings = (_read(dom, stats, with_xml) for dom, stats in pairs)
    return {r.name: r for r in sorted(readings, key=lambda r: r.name)}


def read_one(conn, name, with_xml=True):
    """The Reading of one domain. Raises NotFound."""
    dom = lookup.lookup(conn, name)
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    [(dom, stats)] = conn.domainListGetStats([dom], _kinds(), flags)
    return _read(dom, stats, with_xml)


def read(conn, name=None, with_xml=True):
    """One domain's reading (by name) or all, as a dict by name."""
    if name:
        return {name: read_one(conn, name, with_xml)}
    return read_all(conn, with_xml)
