"""Differences between the running guests of a host and their definitions."""

from __future__ import annotations

import hashlib

from saltvirt import errors
from saltvirt.diff import pending
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup
from saltvirt.xml.domain.domain import Domain

# the result for two definitions by their digest: metrics are read frequently, and a
# definition changes rarely
_CACHE: dict[bytes, list[str]] = {}
_MAX_CACHED = 4096


def for_domain(dom: libvirt.virDomain, running: str | None = None) -> list[str]:
    """Return the changes that are pending until the next start of a domain, as texts; none if it is
    off.

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
    """Like :func:`for_domain`; None for a domain that is gone or whose definition cannot be
    read."""
    try:
        return for_domain(dom, running)
    except (libvirt.libvirtError, errors.VirtError, ValueError):
        return None


def for_domains(conn: libvirt.virConnect, name: str | None = None) -> dict[str, list[str]]:
    """Return the pending changes of one domain, or of all, by name. Raises NotFound,
    OperationFailed."""
    domains = [lookup.lookup(conn, name)] if name else conn.listAllDomains()
    with connection.translated("compare the running definitions with the stored ones"):
        if name:
            return {str(name): for_domain(domains[0])}
        by_guest = {dom.name(): try_for_domain(dom) for dom in domains}
    return {guest: texts for guest, texts in by_guest.items() if texts is not None}
