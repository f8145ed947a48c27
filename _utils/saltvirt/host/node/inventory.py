"""What placement must know of this host, read at the moment it is asked."""

import contextlib
from xml.etree import ElementTree

from saltvirt import errors, settings
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


def read(conn, get, images_folder):
    """The host's inventory as plain data; see ``virt.inventory`` for the keys.

    conn: libvirt connection. get: Salt's ``config.get``. images_folder: path.
    """
    with bounded.noting() as silent:
        found = _read(conn, get, images_folder)
    return {**found, **({"silent": sorted(silent)} if silent else {})}


def _read(conn, get, images_folder):
    info = conn.getInfo()
    stores = Stores(conn)
    guests = _guests(conn, stores)
    arriving = _arriving(guests, stores)
    own = stores.folder(images_folder)
    found = stores.read()
    return {
        "cpus": info[2],
        "memory_kib": info[1] * 1024,
        "arch": info[0],
        **_runs(conn, info[1] * 1024),
        "hugepage_kib": hugepages.usual_kib(),
        "guests": guests,
        "arriving": arriving,
        "images_folder": {"path": str(images_folder), **found["stores"][own], "store": own},
        "images": _images(images_folder),
        "bridges": links.bridges(),
        "networks": sorted(n.name() for n in conn.listAllNetworks() if n.isActive()),
        **found,
        "labels": settings.option(get, "labels", {}),
        "ratios": settings.option(get, "ratios", {}),
        "placement": settings.option(get, "placement", {}),
        "maintenance": (maintenance.read() or {}).get("reason"),
        "libvirt": conn.getLibVersion(),
    }


def _images(folder):
    """The addresses of the cached images; none of a folder that does not answer."""
    try:
        return sorted({meta["source"] for meta in cache.known(folder)})
    except errors.OperationFailed:
        return []


def _runs(conn, memory_kib):
    """libvirt's domain ``types`` and the ``arches`` of the guests that this host can run, and its
    ``hugepages``: size in KiB to how many KiB they are."""
    root = ElementTree.fromstring(conn.getCapabilities())
    types = {d.get("type") for d in root.iterfind("guest/arch/domain")}
    arches = {a.get("name") for a in root.iterfind("guest/arch")}
    return {
        "types": sorted(types),
        "arches": sorted(arches),
        "hugepages": hugepages.named(hugepages.huge(root, memory_kib)),
    }


def _guests(conn, stores):
    """Every domain by name; what their disks may still grow is counted in the stores."""
    autostarted = {
        d.UUIDString() for d in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART)
    }
    guests = {}
    definitions = _definitions(conn)
    blocks = stats.blocks(conn, definitions.values())
    nowait = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    for dom, state in conn.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, nowait):
        if dom.UUIDString() not in definitions:
            continue
        seen = {**state, **blocks.get(dom.UUIDString(), {})}
        active = lookup.state_name(seen.get("state.state")) in facts.ACTIVE
        trees = definitions[dom.UUIDString()][1]
        found = placement_facts.read(trees)
        disks = stores.disks(dom.name(), trees, seen, active, of_tree(trees[0]))
        guests[dom.name()] = {
            "uuid": dom.UUIDString(),
            "state": lookup.state_name(seen.get("state.state")),
            "autostart": dom.UUIDString() in autostarted,
            **found,
            **({"disks": disks} if disks else {}),
        }
    return guests


def _definitions(conn):
    """(the domain, its definitions) of each, by UUID."""
    found = {}
    for dom in conn.listAllDomains():
        with contextlib.suppress(libvirt.libvirtError):  # undefined since it was listed
            trees = placement_facts.definitions(dom, dom.isActive())
            found[dom.UUIDString()] = dom, trees
    return found


def _arriving(guests, stores):
    """What was promised to guests that are being moved here; their disks' growth is counted in
    the stores."""
    found = {}
    for one in reservations.here(guests):
        found[one.name] = {
            "memory_kib": one.memory_kib, "vcpus": one.vcpus, "page_kib": one.page_kib,
        }  # fmt: skip
        for place, size in one.disks:
            store = stores.folder(place) if place.startswith("/") else stores.pool(place)
            stores.grow(store, (one.name, place), size)
    return found
