"""What placement must know of this host, read at the moment it is asked."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from saltvirt import errors, settings
from saltvirt.host.capabilities import raw
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup, placement_facts, stats
from saltvirt.host.domain.metadata import of_tree
from saltvirt.host.migration import reservations
from saltvirt.host.network import links
from saltvirt.host.node import hugepages, maintenance
from saltvirt.host.storage import bounded
from saltvirt.host.storage.capacity import Stores
from saltvirt.images import cache
from saltvirt.placement import facts


def read(conn: libvirt.virConnect, get: Callable[..., Any], images_folder: str) -> facts.Inventory:
    """The host's inventory.

    conn: libvirt connection. get: Salt's ``config.get``. images_folder: path.
    """
    with bounded.noting() as silent:
        found = _read(conn, get, images_folder)
    return replace(found, silent=tuple(sorted(silent)))


def _read(conn: libvirt.virConnect, get: Callable[..., Any], images_folder: str) -> facts.Inventory:
    arch, memory_mib, cpus, *_ = conn.getInfo()
    capabilities = ElementTree.fromstring(raw.read(conn))
    stores = Stores(conn)
    guests = _guests(conn, stores)
    arriving = _arriving(guests, stores)
    own = stores.folder(images_folder)
    found = stores.read()
    return facts.Inventory(
        cpus=cpus,
        memory_kib=memory_mib * 1024,
        arch=arch,
        types=_names(capabilities, "guest/arch/domain", "type"),
        arches=_names(capabilities, "guest/arch", "name"),
        hugepages=hugepages.named(hugepages.huge(capabilities, memory_mib * 1024)),
        hugepage_kib=hugepages.usual_kib(),
        guests=guests,
        arriving=arriving,
        images_folder=facts.Folder(
            **vars(found["stores"][own]), store=own, path=str(images_folder)
        ),
        images=_images(images_folder),
        bridges=frozenset(links.bridges()),
        networks=frozenset(n.name() for n in conn.listAllNetworks() if n.isActive()),
        **found,
        labels=settings.option(get, "labels", {}),
        ratios=settings.option(get, "ratios", {}),
        placement=settings.option(get, "placement", {}),
        maintenance=maintenance.reason(),
        libvirt=conn.getLibVersion(),
    )


def _images(folder: str) -> frozenset[str]:
    """The addresses of the cached images; none of a folder that does not answer."""
    try:
        return frozenset(note.source for note in cache.known(folder))
    except errors.OperationFailed:
        return frozenset()


def _names(capabilities: Element, path: str, attribute: str) -> tuple[str, ...]:
    """That attribute of all elements there, sorted."""
    found = {element.get(attribute) for element in capabilities.iterfind(path)}
    return tuple(sorted(filter(None, found)))


def _guests(conn: libvirt.virConnect, stores: Stores) -> dict[str, facts.Guest]:
    """Every domain by name; what their disks may still grow is counted in the stores."""
    autostarted = {
        d.UUIDString() for d in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART)
    }
    guests = {}
    definitions = _definitions(conn)
    blocks = stats.blocks(conn, definitions.values())
    nowait = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    for dom, state in conn.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, nowait):
        name, guest_uuid = dom.name(), dom.UUIDString()
        if guest_uuid not in definitions:
            continue
        seen = {**state, **blocks.get(guest_uuid, {})}
        word = lookup.state_name(seen.get("state.state"))
        trees = definitions[guest_uuid][1]
        active = word in facts.ACTIVE
        guests[name] = replace(
            placement_facts.read(name, trees),
            uuid=guest_uuid,
            state=word,
            autostart=guest_uuid in autostarted,
            disks=stores.disks(name, trees, seen, active, of_tree(trees[0])),
        )
    return guests


def _definitions(conn: libvirt.virConnect) -> dict[str, tuple[libvirt.virDomain, list[Element]]]:
    """(the domain, its definitions) of each, by UUID."""
    found = {}
    for dom in conn.listAllDomains():
        with contextlib.suppress(libvirt.libvirtError):  # undefined since it was listed
            trees = placement_facts.definitions(dom, bool(dom.isActive()))
            found[dom.UUIDString()] = dom, trees
    return found


def _arriving(guests: dict[str, facts.Guest], stores: Stores) -> dict[str, facts.Arriving]:
    """What was promised to guests that are being moved here; their disks' growth is counted in
    the stores."""
    found = {}
    for one in reservations.here(guests):
        found[one.name] = facts.Arriving(one.vcpus, one.memory_kib, one.page_kib)
        for place, size in one.disks:
            store = stores.folder(place) if place.startswith("/") else stores.pool(place)
            stores.grow(store, (one.name, place), size)
    return found
