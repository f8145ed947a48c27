"""What the running guests of a host lack of their definitions."""

from __future__ import annotations

import hashlib

from saltvirt import errors
from saltvirt.diff import pending
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup
from saltvirt.xml.domain import Domain

# what was found of two definitions, by their digest: who reads metrics asks again and again, and a
# definition is rarely another
_FOUND: dict[bytes, list[str]] = {}
_MOST = 4096


def of_one(dom: libvirt.virDomain, running: str | None = None) -> list[str]:
    """What waits for the next start of a domain, a text for each; nothing of one that is off.

    running: its running definition, if it was read already. Raises libvirtError.
    """
    if not dom.isActive():
        return []
    running = dom.XMLDesc(0) if running is None else running
    stored = dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    digest = hashlib.sha256(f"{len(running)} {running}{stored}".encode()).digest()
    found = _FOUND.get(digest)
    if found is None:
        if len(_FOUND) >= _MOST:
            _FOUND.clear()
        found = pending.waits(
            pending.lacking(Domain.fromstring(running), Domain.fromstring(stored))
        )
        _FOUND[digest] = found
    return list(found)


def try_one(dom: libvirt.virDomain, running: str | None = None) -> list[str] | None:
    """The same; None of a domain that is gone, or whose definition cannot be read."""
    try:
        return of_one(dom, running)
    except (libvirt.libvirtError, errors.VirtError, ValueError):
        return None


def of_all(conn: libvirt.virConnect, name: str | None = None) -> dict[str, list[str]]:
    """What waits for the next start of one domain, or of all, by name. Raises NotFound,
    OperationFailed."""
    domains = [lookup.lookup(conn, name)] if name else conn.listAllDomains()
    with connection.translated("compare the running definitions with the stored ones"):
        if name:
            return {str(name): of_one(domains[0])}
        found = {dom.name(): try_one(dom) for dom in domains}
    return {guest: texts for guest, texts in found.items() if texts is not None}
