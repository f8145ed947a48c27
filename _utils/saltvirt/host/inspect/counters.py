"""Counters of a host and its guests, and the use of resources between two readings of them.

Pure: this module neither calls libvirt nor opens files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.answers.inspection import GuestUsage
from saltvirt.schema import Message

# counter to libvirt's statistics that are added up: (kind of device, key)
DEVICES = {
    "disk_read_bytes": ("block", "rd.bytes"),
    "disk_written_bytes": ("block", "wr.bytes"),
    "network_received_bytes": ("net", "rx.bytes"),
    "network_sent_bytes": ("net", "tx.bytes"),
}
_MAX_DEVICES = 4096


@dataclass(frozen=True)
class GuestCounters(Message):
    """Counters of a guest since it started. domain_id: libvirt's number of this start. cpu_ns: CPU
    time; devices: the keys of DEVICES to bytes."""

    domain_id: int
    cpu_ns: int
    devices: dict[str, int]


@dataclass(frozen=True)
class HostCounters(Message):
    """at_s: seconds since the host started. cpu_busy, cpu_total: of all CPUs, in the kernel's
    ticks. guests: UUID to its counters."""

    at_s: float
    cpu_busy: int
    cpu_total: int
    guests: dict[str, GuestCounters]


def of_guest(domain_id: int, cpu_ns: int, stats: Mapping[str, Any]) -> GuestCounters:
    """Return the counters in the statistics of a running guest."""
    devices = {name: _summed(stats, kind, key) for name, (kind, key) in DEVICES.items()}
    return GuestCounters(max(0, domain_id), cpu_ns, devices)


def _summed(stats: Mapping[str, Any], kind: str, key: str) -> int:
    count = min(int(stats.get(f"{kind}.count", 0)), _MAX_DEVICES)
    return sum(int(stats.get(f"{kind}.{index}.{key}", 0)) for index in range(count))


def of_cpus(text: str) -> tuple[int, int]:
    """Return (busy, total) ticks of all CPUs from the content of ``/proc/stat``."""
    fields = [int(field) for field in text.split("\n", 1)[0].split()[1:]]
    total = sum(fields[:8])  # the time of guests, which follows, is part of the user time
    return total - sum(fields[3:5]), total


def seconds(before: HostCounters | None, after: HostCounters) -> float | None:
    """Return the time between two readings; None if there is no earlier one."""
    return after.at_s - before.at_s if before and after.at_s > before.at_s else None


def cpu_percent(before: HostCounters | None, after: HostCounters) -> float | None:
    """Return the use of all CPUs of the host between two readings."""
    total = after.cpu_total - before.cpu_total if before else 0
    if before is None or total <= 0:
        return None
    return round(min(100.0, max(0.0, 100 * (after.cpu_busy - before.cpu_busy) / total)), 1)


def guest_rates(before: HostCounters | None, after: HostCounters, uuid: str) -> dict[str, Any]:
    """Return ``cpu_percent`` and the rates of a guest; None for each if it did not run at both
    readings."""
    duration_s = seconds(before, after)
    first = before.guests.get(uuid) if before else None
    last = after.guests.get(uuid)
    if not (duration_s and first and last and first.domain_id == last.domain_id):
        return {}
    rates: dict[str, Any] = {
        f"{name}_s": round(
            max(0, last.devices.get(name, 0) - first.devices.get(name, 0)) / duration_s
        )
        for name in DEVICES
    }
    busy_ns = max(0, last.cpu_ns - first.cpu_ns)
    return {**rates, "cpu_percent": round(busy_ns / duration_s / 1e7, 1)}


def summed_rates(guests: Iterable[GuestUsage]) -> dict[str, int | None]:
    """Return the rates of all guests together; None if none is known."""
    usages = list(guests)
    total: dict[str, int | None] = {}
    for name in DEVICES:
        values = [value for usage in usages if (value := getattr(usage, f"{name}_s")) is not None]
        total[f"{name}_s"] = sum(values) if values or not usages else None
    return total


def baseline(
    readings: Iterable[HostCounters], now_s: float, min_age_s: float, max_age_s: float
) -> HostCounters | None:
    """Return the latest reading of that age; None if there is none."""
    fitting = [reading for reading in readings if min_age_s <= now_s - reading.at_s <= max_age_s]
    newest: Callable[[HostCounters], float] = lambda reading: reading.at_s  # noqa: E731
    return max(fitting, key=newest, default=None)
