"""Find the domains of one host, and their states."""

from __future__ import annotations

import contextlib
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt

# virConnectListAllDomainsFlags
ACTIVE, INACTIVE = 1, 2

# virDomainState, as users of Salt know it. A domain that is shutting down
# (4) still runs: its memory is taken and its disks are open.
STATES = {
    0: "running",
    1: "running",
    2: "running",
    3: "paused",
    4: "running",
    5: "shutdown",
    6: "crashed",
    7: "pmsuspended",
}


def state_name(code: int | None) -> str:
    """Return the name of a virDomainState number."""
    return "unknown" if code is None else STATES.get(code, "unknown")


def off_with_source(conn: libvirt.virConnect, device: str, attribute: str, value: str) -> list[str]:
    """Return the sorted names of the inactive guests that have a device with this source.

    device: the element below ``<devices>``, such as ``interface``; attribute: of its ``<source>``,
    such as ``network``.
    """
    names = set()
    for dom in conn.listAllDomains():
        with connection.skip_undefined():
            sources = ElementTree.fromstring(dom.XMLDesc(0)).iterfind(f"devices/{device}/source")
            if not dom.isActive() and any(source.get(attribute) == value for source in sources):
                names.add(dom.name())
    return sorted(names)


def state(dom: libvirt.virDomain) -> str:
    """Return the domain's current state: running, paused, shutdown, crashed or pmsuspended."""
    return state_name(dom.state()[0])


def states(conn: libvirt.virConnect) -> dict[str, str]:
    """Return every domain's state by name, without domains that disappear meanwhile."""
    by_name = {}
    for dom in conn.listAllDomains():
        with connection.skip_undefined():
            by_name[dom.name()] = state(dom)
    return by_name


def uuids(conn: libvirt.virConnect) -> dict[str, str]:
    """Return every domain's UUID by name."""
    return {dom.name(): dom.UUIDString() for dom in conn.listAllDomains()}


def lookup(conn: libvirt.virConnect, name: str) -> libvirt.virDomain:
    """Return the virDomain of this name. Raises NotFound, naming the host."""
    try:
        with connection.translated():
            return conn.lookupByName(str(name))
    except errors.NotFound as exc:
        raise errors.NotFound(f"no guest {str(name)!r} on {conn.getHostname()}") from exc


def find(conn: libvirt.virConnect, name: str) -> libvirt.virDomain | None:
    """Return the virDomain of this name, or None."""
    with contextlib.suppress(errors.NotFound):
        return lookup(conn, name)
    return None


def names(conn: libvirt.virConnect, flags: int = 0) -> list[str]:
    """Return the sorted names of the domains; flags: VIR_CONNECT_LIST_DOMAINS_*."""
    domain_names = []
    for dom in conn.listAllDomains(flags):
        with contextlib.suppress(libvirt.libvirtError):  # the domain may be gone by now
            domain_names.append(dom.name())
    return sorted(domain_names)


def from_file(path: str) -> str:
    """Return the text of an XML file on this host. Raises InvalidInput."""
    if not isinstance(path, str):
        raise errors.InvalidInput(f"path {path!r} is not the path of a file")
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, ValueError) as exc:
        raise errors.InvalidInput(f"cannot read {path}: {exc}") from exc


def names_in(xml: str) -> list[str]:
    """Return a list with the name in a domain's XML; empty if it cannot be parsed."""
    try:
        name = ElementTree.fromstring(xml).findtext("name")
    except (ElementTree.ParseError, TypeError, ValueError):  # libvirt will report the error
        return []
    return [name] if name else []


def define(conn: libvirt.virConnect, xml: str) -> libvirt.virDomain:
    """Define a persistent domain and return the virDomain. Errors are libvirt's."""
    with connection.translated("define the domain"):
        return conn.defineXML(xml)


def create(conn: libvirt.virConnect, xml: str) -> libvirt.virDomain:
    """Start a transient domain, confirm that it runs, and return the virDomain."""
    with connection.translated("create the domain"):
        dom = conn.createXML(xml, 0)
        if not dom.isActive():
            raise errors.OperationFailed(f"{dom.name()} stopped right after its start")
    return dom
