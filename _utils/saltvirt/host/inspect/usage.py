"""The use of resources by a host and its guests.

The host stores its last readings in memory, so that the next request is answered at once with the
use since then.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable
from typing import Any
from xml.etree.ElementTree import Element

from saltvirt import errors, schema
from saltvirt.answers.inspection import GuestUsage, HostUsage
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import describe, lookup, stats
from saltvirt.host.inspect import counters
from saltvirt.host.inspect.counters import HostCounters
from saltvirt.system import atomic_file, bounded_io, private_folder

# without a stored reading, the use is measured over this time
SAMPLE_S = 0.25
# the age of a stored reading that the next one is compared with
MIN_AGE_S, MAX_AGE_S = 1.0, 60.0
FILE = "usage.json"
_MAX_BYTES = 8 << 20
_PROC = "/proc"
_INACTIVE = ("shutdown", "crashed")

# (UUID, name, its statistics)
_Guest = tuple[str, str, dict[str, Any]]


def measure(conn: libvirt.virConnect, folder: str) -> HostUsage:
    """Return the use of resources since a previous reading in the folder, which is at most a minute
    old, or else during a quarter of a second."""
    path = os.path.join(folder, FILE)
    readings = _load(path)
    guests, after = _read_all(conn)
    before = counters.baseline(readings, after.at_s, MIN_AGE_S, MAX_AGE_S)
    if before is None:
        before = after
        time.sleep(SAMPLE_S)
        guests, after = _read_all(conn)
        _store(path, [before, after])
    elif counters.baseline(readings, after.at_s, 0, MIN_AGE_S) is None:
        _store(path, [before, after])
    return _usage(guests, before, after)


class GuestMeasurement:
    """Measures the use of resources by one guest: since a stored reading, or since this is created.
    folder: as for ``measure``."""

    def __init__(self, conn: libvirt.virConnect, dom: libvirt.virDomain, folder: str) -> None:
        self._conn, self._dom, self._uuid = conn, dom, dom.UUIDString()
        _, first = self._read()
        stored = _load(os.path.join(folder, FILE))
        before = counters.baseline(stored, first.at_s, MIN_AGE_S, MAX_AGE_S)
        is_known = before is not None and self._uuid in before.guests
        self._before = before if before is not None and is_known else first

    def _read(self) -> tuple[list[_Guest], HostCounters]:
        nowait = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
        pairs = self._conn.domainListGetStats([self._dom], stats.kinds(), nowait)
        return _read(self._conn, pairs)

    def result(self) -> GuestUsage | None:
        """Return the use now; None if the guest is off."""
        time.sleep(max(0.0, SAMPLE_S - (time.monotonic() - self._before.at_s)))
        guests, after = self._read()
        usages = [_guest_usage(uuid, values, self._before, after) for uuid, _, values in guests]
        return next((usage for usage in usages if usage.state not in _INACTIVE), None)


def _read_all(conn: libvirt.virConnect) -> tuple[list[_Guest], HostCounters]:
    nowait = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    return _read(conn, conn.getAllDomainStats(stats.kinds(), nowait))


def _read(
    conn: libvirt.virConnect, pairs: Iterable[tuple[libvirt.virDomain, dict[str, Any]]]
) -> tuple[list[_Guest], HostCounters]:
    listed, definitions, ids = [], [], {}
    for dom, values in pairs:
        with contextlib.suppress(libvirt.libvirtError):  # undefined since
            defined = {}
            if _is_active(values):
                tree = stats.tree(dom)
                definitions.append((dom, [tree]))
                ids[dom.UUIDString()] = dom.ID()
                defined = _defined(tree, values)
            listed.append((dom.UUIDString(), dom.name(), {**defined, **values}))
    blocks = stats.blocks(conn, definitions)
    guests = [(uuid, name, {**values, **blocks.get(uuid, {})}) for uuid, name, values in listed]
    busy, total = counters.of_cpus(_text("stat"))
    by_uuid = {
        uuid: counters.of_guest(ids[uuid], describe.cpu_time(values), values)
        for uuid, _, values in guests
        if uuid in ids
    }
    return guests, HostCounters(time.monotonic(), busy, total, by_uuid)


def _defined(tree: Element, values: dict[str, Any]) -> dict[str, int]:
    """Return what the definition says where a driver has no statistics."""
    _, current_kib = describe.memory_kib(tree, values)
    return {"vcpu.current": describe.vcpus(tree, values), "balloon.current": current_kib}


def _is_active(values: dict[str, Any]) -> bool:
    return lookup.state_name(values.get("state.state")) not in _INACTIVE


def _text(name: str) -> str:
    with open(os.path.join(_PROC, name), encoding="ascii") as file:
        return file.read()


def _usage(guests: Iterable[_Guest], before: HostCounters, after: HostCounters) -> HostUsage:
    by_name = {name: _guest_usage(uuid, values, before, after) for uuid, name, values in guests}
    active = [usage for name, usage in by_name.items() if usage.state not in _INACTIVE]
    memory = _memory_bytes()
    return HostUsage(
        cpus=os.cpu_count() or 1,
        cpu_percent=counters.cpu_percent(before, after),
        load=tuple(round(value, 2) for value in os.getloadavg()),
        memory_bytes=memory.get("MemTotal", 0),
        memory_used_bytes=memory.get("MemTotal", 0) - memory.get("MemAvailable", 0),
        memory_allocated_bytes=sum(usage.memory_bytes for usage in active),
        vcpus_allocated=sum(usage.vcpus for usage in active),
        pressure=_pressure(),
        seconds=round(after.at_s - before.at_s, 2),
        guests=dict(sorted(by_name.items())),
        **counters.summed_rates(active),
    )


def _guest_usage(
    uuid: str, values: dict[str, Any], before: HostCounters, after: HostCounters
) -> GuestUsage:
    available, usable = values.get("balloon.available"), values.get("balloon.usable")
    used_kib = available - usable if available is not None and usable is not None else None
    return GuestUsage(
        state=lookup.state_name(values.get("state.state")),
        vcpus=values.get("vcpu.current", 0),
        memory_bytes=values.get("balloon.current", 0) * 1024,
        memory_used_bytes=None if used_kib is None else max(0, used_kib) * 1024,
        **counters.guest_rates(before, after, uuid),
    )


def _memory_bytes() -> dict[str, int]:
    lines = (line.split() for line in _text("meminfo").splitlines())
    return {fields[0].rstrip(":"): int(fields[1]) * 1024 for fields in lines if len(fields) > 1}


def _pressure() -> dict[str, float] | None:
    pressure = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for resource in ("cpu", "memory", "io"):
            fields = _text(f"pressure/{resource}").splitlines()[0].split()
            pressure[resource] = float(fields[1].removeprefix("avg10="))
    return pressure or None


def _load(path: str) -> list[HostCounters]:
    """Return the stored readings; none if the file cannot be read."""
    with contextlib.suppress(OSError, ValueError, RecursionError, errors.BadAnswer):
        data = json.loads(bounded_io.head(path, _MAX_BYTES) or b"")
        return schema.read(list[HostCounters], data, path)
    return []


def _store(path: str, readings: list[HostCounters]) -> None:
    """Store the readings; without them, the next request measures again."""
    data = json.dumps(schema.plain(readings)).encode()
    with contextlib.suppress(OSError, errors.OperationFailed):
        private_folder.ensure(os.path.dirname(path))
        part = atomic_file.unique_part(path)
        atomic_file.write(path, data, durable=False, part=part)
