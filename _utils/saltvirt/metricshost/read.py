"""A hypervisor's metrics: of its guests for each who asks, of the rest from time to time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from saltvirt import settings
from saltvirt.answers.migration import Certificate
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup, stats, waiting
from saltvirt.host.migration import move_journal
from saltvirt.host.node import inventory
from saltvirt.host.provision import images_folder
from saltvirt.host.storage import bounded, filesystems
from saltvirt.images import cache
from saltvirt.metrics import guests, room
from saltvirt.metrics.family import Family, Sample, gauge, one
from saltvirt.placement import facts, policy

Certificates = Callable[[], dict[str, Certificate]]


def seen(conn: libvirt.virConnect, host: str) -> list[guests.GuestSeen]:
    """All guests, by one bulk call in which libvirt waits for none of them.

    Where a file system does not answer, libvirt would wait for ever when it looks at disks there:
    then it is asked for disks of guests that have none on it, by a second call.
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
    return [_seen(dom, {**said, **blocks.get(dom.UUIDString(), {})}, host) for dom, said in pairs]


def _all_storage_answers() -> bool:
    with bounded.noting() as silent:
        for mount in filesystems.read().values():
            if mount.local or mount.shared:
                filesystems.sizes(mount)
    return not silent


def _seen(dom: libvirt.virDomain, said: dict[str, Any], host: str) -> guests.GuestSeen:
    labels = {"guest": dom.name(), "host": host, "uuid": dom.UUIDString()}
    found = waiting.try_one(dom)
    pending = None if found is None else len(found)
    return guests.GuestSeen(labels, lookup.state_name(said.get("state.state")), said, pending)


def of_guests(where: settings.Connection, host: str) -> list[guests.GuestSeen]:
    """What :func:`seen` says of that libvirt. Raises ConnectionFailed and the like."""
    with connection.connect(where) as conn:
        return seen(conn, host)


def families(found: list[guests.GuestSeen] | None, host: str) -> Iterator[Family]:
    """The Families of the guests. found: None where libvirt did not answer."""
    yield one("libvirt_up", "1 when libvirt has answered.", {"host": host}, int(found is not None))
    yield from guests.families(found or [])


def of_room(get: settings.Get, host: str) -> list[Family]:
    """What the host has promised and could still, by the configuration's own policy. Raises
    ConnectionFailed, InvalidInput and the like."""
    folder = images_folder.configured(get).folder
    with connection.connect(settings.connection(get, {})) as conn:
        found = inventory.read(conn, get, folder)
    own = policy.from_config(settings.option(get, "placement", {}))
    return list(room.families(facts.host_of(host, found), own))


def of_files(get: settings.Get, host: str, certificates: Certificates) -> list[Family]:
    """What files say: of images, migrations, certificates. Raises VirtError."""
    images = list(cache.known(images_folder.configured(get).folder))
    here = {"host": host}
    moves = move_journal.unfinished().values()
    going = sum(bool(one.at_work) for one in moves)
    return [
        one("image_cache_images", "Images in the host's cache.", here, len(images)),
        one("image_cache_bytes", "What the images in the host's cache take.", here,
            sum(_taken(note.path) for note in images)),
        gauge("migrations", "Migrations from this host: under way, or broken off.", [
            Sample({**here, "state": "running"}, going),
            Sample({**here, "state": "broken_off"}, len(moves) - going),
        ]),
        gauge("certificate_not_after_timestamp_seconds",
              "Until when a certificate holds that the host shows to others.",
              [Sample({**here, "use": use}, datetime.fromisoformat(found.until).timestamp())
               for use, found in sorted(certificates().items())]),
    ]  # fmt: skip


def _taken(path: str) -> int:
    try:
        return bounded.stat(path).st_blocks * 512
    except OSError:  # removed since, or on what does not answer
        return 0
