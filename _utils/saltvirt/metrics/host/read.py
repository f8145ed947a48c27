"""Read a hypervisor's metrics: those of guests for each request, the others periodically."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from saltvirt import settings
from saltvirt.answers.migration import Certificate
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup, pending_changes, stats
from saltvirt.host.migration import move_journal
from saltvirt.host.node import inventory
from saltvirt.host.provision import images_folder
from saltvirt.host.storage import filesystems
from saltvirt.images import cache
from saltvirt.metrics.model import guests, host_capacity
from saltvirt.metrics.model.family import Family, Sample, gauge, single_gauge
from saltvirt.placement import facts, policy
from saltvirt.system import bounded_io

Certificates = Callable[[], dict[str, Certificate]]


def guest_stats(conn: libvirt.virConnect, host: str) -> list[guests.GuestStats]:
    """The statistics of all guests, from one bulk call in which libvirt waits for no guest.

    If a file system does not respond, libvirt would wait forever for the disks there. A second call
    then asks for the disks of guests that do not use it.
    """
    nowait = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    blocks: dict[str, dict[str, Any]] = {}
    if _all_storage_answers():
        pairs = conn.getAllDomainStats(stats.kinds() | libvirt.VIR_DOMAIN_STATS_BLOCK, nowait)
    else:
        pairs, definitions = conn.getAllDomainStats(stats.kinds(), nowait), []
        for dom, _ in pairs:
            with contextlib.suppress(libvirt.libvirtError):  # undefined since
                definitions.append((dom, [stats.tree(dom)]))
        blocks = stats.blocks(conn, definitions)
    return [
        _guest_stats(dom, {**values, **blocks.get(dom.UUIDString(), {})}, host)
        for dom, values in pairs
    ]


def _all_storage_answers() -> bool:
    with bounded_io.record_timeouts() as silent:
        for mount in filesystems.read().values():
            if mount.local or mount.shared:
                filesystems.sizes(mount)
    return not silent


def _guest_stats(dom: libvirt.virDomain, values: dict[str, Any], host: str) -> guests.GuestStats:
    labels = {"guest": dom.name(), "host": host, "uuid": dom.UUIDString()}
    changes = pending_changes.try_for_domain(dom)
    pending = None if changes is None else len(changes)
    return guests.GuestStats(labels, lookup.state_name(values.get("state.state")), values, pending)


def read_guests(access: settings.Connection, host: str) -> list[guests.GuestStats]:
    """guest_stats of a libvirt daemon. Raises ConnectionFailed and others."""
    with connection.connect(access) as conn:
        return guest_stats(conn, host)


def families(all_stats: list[guests.GuestStats] | None, host: str) -> Iterator[Family]:
    """The Families of the guests. all_stats: None if libvirt did not respond."""
    yield single_gauge(
        "libvirt_up", "1 if libvirt has responded.", {"host": host}, int(all_stats is not None)
    )
    yield from guests.families(all_stats or [])


def read_capacity(get: settings.Get, host: str) -> list[Family]:
    """The host's capacity according to its own policy. Raises ConnectionFailed, InvalidInput and
    others."""
    folder = images_folder.configured(get).folder
    with connection.connect(settings.connection(get, {})) as conn:
        host_inventory = inventory.read(conn, get, folder)
    host_policy = policy.from_config(settings.option(get, "placement", {}))
    return list(host_capacity.families(facts.host_of(host, host_inventory), host_policy))


def read_files(get: settings.Get, host: str, certificates: Certificates) -> list[Family]:
    """Metrics from files: images, migrations, certificates. Raises VirtError."""
    images = list(cache.cached_images(images_folder.configured(get).folder))
    labels = {"host": host}
    moves = move_journal.unfinished().values()
    running = sum(bool(move.at_work) for move in moves)
    return [
        single_gauge("image_cache_images", "Images in the host's cache.", labels, len(images)),
        single_gauge("image_cache_bytes", "Size of the images in the host's cache.", labels,
            sum(_allocated_bytes(note.path) for note in images)),
        gauge("migrations", "Migrations from this host that are running or were interrupted.", [
            Sample({**labels, "state": "running"}, running),
            Sample({**labels, "state": "interrupted"}, len(moves) - running),
        ]),
        gauge("certificate_not_after_timestamp_seconds",
              "Expiry of a certificate that the host presents to others.",
              [Sample({**labels, "use": use}, datetime.fromisoformat(cert.valid_until).timestamp())
               for use, cert in sorted(certificates().items())]),
    ]  # fmt: skip


def _allocated_bytes(path: str) -> int:
    try:
        return bounded_io.stat(path).st_blocks * 512
    except OSError:  # removed since, or on what does not answer
        return 0
