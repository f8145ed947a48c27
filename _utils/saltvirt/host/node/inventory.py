"""The inventory of this host for placement."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from saltvirt import errors, settings
from saltvirt.host.capabilities import capabilities_xml
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup, placement_facts, stats
from saltvirt.host.domain.metadata import of_tree
from saltvirt.host.migration import reservations
from saltvirt.host.network import links
from saltvirt.host.node import hugepages, maintenance
from saltvirt.host.storage.capacity import Stores
from saltvirt.images import cache
from saltvirt.placement import facts
from saltvirt.spec import profiles
from saltvirt.system import bounded_io


def read(conn: libvirt.virConnect, get: Callable[..., Any], images_folder: str) -> facts.Inventory:
    """Read the host's inventory.

    get: Salt's ``config.get``. images_folder: path.
    """
    with bounded_io.record_timeouts() as unresponsive:
        inventory = _read(conn, get, images_folder)
    return replace(inventory, silent=tuple(sorted(unresponsive)))


def _read(conn: libvirt.virConnect, get: Callable[..., Any], images_folder: str) -> facts.Inventory:
    arch, memory_mib, cpus, *_ = conn.getInfo()
    capabilities = ElementTree.fromstring(capabilities_xml.read(conn))
    stores = Stores(conn)
    guests = _guests(conn, stores)
    arriving = _arrivals(guests, stores)
    images_store = stores.folder(images_folder)
    store_facts = stores.read()
    return facts.Inventory(
        cpus=cpus,
        memory_kib=memory_mib * 1024,
        arch=arch,
        types=_names(capabilities, "guest/arch/domain", "type"),
        arches=_names(capabilities, "guest/arch", "name"),
        hugepages=hugepages.with_text_keys(hugepages.huge_pages(capabilities, memory_mib * 1024)),
        hugepage_kib=hugepages.default_size_kib(),
        guests=guests,
        arriving=arriving,
        images_folder=facts.ImagesStorage(
            **vars(store_facts["stores"][images_store]), store=images_store, path=str(images_folder)
        ),
        images=_images(images_folder),
        bridges=frozenset(links.bridges()),
        networks=frozenset(n.name() for n in conn.listAllNetworks() if n.isActive()),
        **store_facts,
        labels=settings.option(get, "labels", {}),
        ratios=settings.option(get, "ratios", {}),
        placement=settings.option(get, "placement", {}),
        maintenance=maintenance.reason(),
        libvirt=conn.getLibVersion(),
        disk_profiles=_profile_names(get, "disk"),
        nic_profiles=_profile_names(get, "nic"),
    )


def _profile_names(get: Callable[..., Any], kind: str) -> tuple[str, ...]:
    """Return the sorted names of the profiles of ``virt:disk`` or ``virt:nic``. A wrong setting is
    an error of the guest that uses it, not of the inventory."""
    names = {profiles.DEFAULT}
    with contextlib.suppress(errors.InvalidInput):
        names |= {str(name) for name in settings.mapping(get, kind)}
    return tuple(sorted(names))


def _images(folder: str) -> frozenset[str]:
    """Return the addresses of the cached images; none if the folder does not respond."""
    try:
        return frozenset(note.source for note in cache.cached_images(folder))
    except errors.OperationFailed:
        return frozenset()


def _names(capabilities: Element, path: str, attribute: str) -> tuple[str, ...]:
    """Return the sorted values of an attribute in all elements at a path."""
    values = {element.get(attribute) for element in capabilities.iterfind(path)}
    return tuple(sorted(filter(None, values)))


def _guests(conn: libvirt.virConnect, stores: Stores) -> dict[str, facts.Guest]:
    """Return each domain by name, and add the growth of its disks to the stores."""
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
        stats_fields = {**state, **blocks.get(guest_uuid, {})}
        state_text = lookup.state_name(stats_fields.get("state.state"))
        trees = definitions[guest_uuid][1]
        active = state_text in facts.ACTIVE
        guests[name] = replace(
            placement_facts.read(name, trees),
            uuid=guest_uuid,
            state=state_text,
            autostart=guest_uuid in autostarted,
            disks=stores.disks(name, trees, stats_fields, active, of_tree(trees[0])),
        )
    return guests


def _definitions(conn: libvirt.virConnect) -> dict[str, tuple[libvirt.virDomain, list[Element]]]:
    """Return (domain, its definitions) by UUID."""
    definitions = {}
    for dom in conn.listAllDomains():
        with contextlib.suppress(libvirt.libvirtError):  # undefined since the listing
            trees = placement_facts.definitions(dom, bool(dom.isActive()))
            definitions[dom.UUIDString()] = dom, trees
    return definitions


def _arrivals(guests: dict[str, facts.Guest], stores: Stores) -> dict[str, facts.Arriving]:
    """Return the reservations of incoming migrations, and add their disks' growth to the stores."""
    arrivals = {}
    for arrival in reservations.local(guests):
        arrivals[arrival.name] = facts.Arriving(arrival.vcpus, arrival.memory_kib, arrival.page_kib)
        for location, size in arrival.disks:
            store = stores.folder(location) if location.startswith("/") else stores.pool(location)
            stores.grow(store, (arrival.name, location), size)
    return arrivals
