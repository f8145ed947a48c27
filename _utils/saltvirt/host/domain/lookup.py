"""Domains of one host: finding them, and what state they are in."""

from __future__ import annotations

import contextlib
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt

# virConnectListAllDomainsFlags
ACTIVE, INACTIVE = 1, 2

# virDomainState, in the words that users of Salt know. A domain that is shutting down
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
    """The word for a virDomainState number."""
    return "unknown" if code is None else STATES.get(code, "unknown")


def off_with_source(conn: libvirt.virConnect, device: str, attribute: str, value: str) -> list[str]:
    """Return the sorted names of the guests that do not run and have a device with such a source.

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
    """The domain's state by now: running, paused, shutdown, crashed or pmsuspended."""
    return state_name(dom.state()[0])


def states(conn: libvirt.virConnect) -> dict[str, str]:
    """Every domain's state by name, without those that go meanwhile."""
    by_name = {}
    for dom in conn.listAllDomains():
        with connection.skip_undefined():
            by_name[dom.name()] = state(dom)
    return by_name


def uuids(conn: libvirt.virConnect) -> dict[str, str]:
    """Every domain's UUID by name."""
    return {dom.name(): dom.UUIDString() for dom in conn.listAllDomains()}


def lookup(conn: libvirt.virConnect, name: str) -> libvirt.virDomain:
    """The virDomain of this name. Raises NotFound, naming the host."""
    try:
        with connection.translated():
            return conn.lookupByName(str(name))
    except errors.NotFound as exc:
        raise errors.NotFound(f"no guest {str(name)!r} on {conn.getHostname()}") from exc


def find(conn: libvirt.virConnect, name: str) -> libvirt.virDomain | None:
    """The virDomain of this name, or None."""
    with contextlib.suppress(errors.NotFound):
        return lookup(conn, name)
    return None


def names(conn: libvirt.virConnect, flags: int = 0) -> list[str]:
    """Sorted names of the domains; flags: VIR_CONNECT_LIST_DOMAINS_*."""
    domain_names = []
    for dom in conn.listAllDomains(flags):
        with contextlib.suppress(libvirt.libvirtError):  # it may be gone by now
            domain_names.append(dom.name())
    return sorted(domain_names)


def from_file(path: str) -> str:
    """The text of an XML file on this host. Raises InvalidInput."""
    if not isinstance(path, str):
        raise errors.InvalidInput(f"path {path!r} is not the path of a file")
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, ValueError) as exc:
        raise errors.InvalidInput(f"cannot read {path}: {exc}") from exc


def names_in(xml: str) -> list[str]:
    """A list with the name that a domain's XML gives it; empty where there is none to read."""
    try:
        name = ElementTree.fromstring(xml).findtext("name")
    except (ElementTree.ParseError, TypeError, ValueError):  # libvirt says what is wrong with it
        return []
    return [name] if name else []


def define(conn: libvirt.virConnect, xml: str) -> libvirt.virDomain:
    """Defines a persistent domain; the virDomain. Errors are libvirt's."""
    with connection.translated("define the domain"):
        return conn.defineXML(xml)


def create(conn: libvirt.virConnect, xml: str) -> libvirt.virDomain:
    """Starts a transient domain and confirms that it runs; the virDomain."""
    with connection.translated("create the domain"):
        dom = conn.createXML(xml, 0)
        if not dom.isActive():
            raise errors.OperationFailed(f"{dom.name()} stopped right after its start")
    return dom
