"""What the running guests of a host lack of their definitions."""

from __future__ import annotations

import hashlib

from saltvirt import errors
from saltvirt.diff import pending
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup
from saltvirt.xml.domain.domain import Domain

# what was found of two definitions, by their digest: who reads metrics asks again and again, and a
# definition is rarely another
_CACHE: dict[bytes, list[str]] = {}
_MAX_CACHED = 4096


def for_domain(dom: libvirt.virDomain, running: str | None = None) -> list[str]:
    """What waits for the next start of a domain, a text for each; nothing of one that is off.

    running: its running definition, if it was read already. Raises libvirtError.
    """
    if not dom.isActive():
        return []
    running = dom.XMLDesc(0) if running is None else running
    stored = dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    digest = hashlib.sha256(f"{len(running)} {running}{stored}".encode()).digest()
    changes = _CACHE.get(digest)
    if changes is None:
        if len(_CACHE) >= _MAX_CACHED:
            _CACHE.clear()
        changes = pending.pending_texts(
            pending.pending_changes(Domain.fromstring(running), Domain.fromstring(stored))
        )
        _CACHE[digest] = changes
    return list(changes)


def try_for_domain(dom: libvirt.virDomain, running: str | None = None) -> list[str] | None:
    """The same; None of a domain that is gone, or whose definition cannot be read."""
    try:
        return for_domain(dom, running)
    except (libvirt.libvirtError, errors.VirtError, ValueError):
        return None


def for_domains(conn: libvirt.virConnect, name: str | None = None) -> dict[str, list[str]]:
    """What waits for the next start of one domain, or of all, by name. Raises NotFound,
    OperationFailed."""
    domains = [lookup.lookup(conn, name)] if name else conn.listAllDomains()
    with connection.translated("compare the running definitions with the stored ones"):
        if name:
            return {str(name): for_domain(domains[0])}
        by_guest = {dom.name(): try_for_domain(dom) for dom in domains}
    return {guest: texts for guest, texts in by_guest.items() if texts is not None}
