"""The metrics of guests, from one bulk call to libvirt.

A value that libvirt does not report, because the guest is off or busy or lacks a balloon driver,
has no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.metrics.model.family import COUNTER, GAUGE, Family, Labels, Sample

_KIB, _NS = 1024, 1e-9


@dataclass(frozen=True)
class GuestStats:
    """One guest. labels: ``guest``, ``host`` and ``uuid``. state: its name. stats: libvirt's names
    to numbers and texts. pending: number of changes that take effect at the guest's next start;
    None if unknown."""

    labels: Labels
    state: str
    stats: dict[str, Any]
    pending: int | None = None


@dataclass(frozen=True)
class _Metric:
    """A metric of a guest or of its devices: the key of libvirt's value and the factor to multiply
    it with."""

    name: str
    kind: str
    key: str
    factor: float
    help_text: str


_GUEST = (
    _Metric("guest_vcpus", GAUGE, "vcpu.current", 1, "vCPUs that are plugged in."),
    _Metric("guest_cpu_seconds", COUNTER, "cpu.time", _NS, (
        "CPU time of the guest, including QEMU's own."
    )),
    _Metric("guest_memory_bytes", GAUGE, "balloon.current", _KIB, "Current memory of the guest."),
    _Metric("guest_memory_maximum_bytes", GAUGE, "balloon.maximum", _KIB, (
        "Maximum memory of the guest."
    )),
    _Metric("guest_memory_resident_bytes", GAUGE, "balloon.rss", _KIB,
        "Memory of the host that the guest's process uses."),
    _Metric("guest_memory_available_bytes", GAUGE, "balloon.available", _KIB,
        "Memory that the guest's system sees, from its balloon driver."),
    _Metric("guest_memory_usable_bytes", GAUGE, "balloon.usable", _KIB,
        "Memory that the guest's system can use without swapping, from its balloon driver."),
    _Metric("guest_swap_in_bytes", COUNTER, "balloon.swap_in", _KIB,
        "Bytes that the guest's system has read from swap."),
    _Metric("guest_swap_out_bytes", COUNTER, "balloon.swap_out", _KIB,
        "Bytes that the guest's system has written to swap."),
)  # fmt: skip
_VCPU = (
    _Metric("guest_vcpu_seconds", COUNTER, "time", _NS, "Time that a vCPU has run."),
    _Metric("guest_vcpu_steal_seconds", COUNTER, "delay", _NS,
        "Time that a vCPU was ready to run but waited for a CPU of the host."),
    _Metric("guest_vcpu_wait_seconds", COUNTER, "wait", _NS,
        "Time that a vCPU has waited for input and output of the host."),
)  # fmt: skip
_DISK = (
    _Metric("guest_disk_reads", COUNTER, "rd.reqs", 1, "Reads of a disk."),
    _Metric("guest_disk_read_bytes", COUNTER, "rd.bytes", 1, "Bytes read from a disk."),
    _Metric("guest_disk_read_seconds", COUNTER, "rd.times", _NS, "Time spent on reads."),
    _Metric("guest_disk_writes", COUNTER, "wr.reqs", 1, "Writes to a disk."),
    _Metric("guest_disk_written_bytes", COUNTER, "wr.bytes", 1, "Bytes written to a disk."),
    _Metric("guest_disk_write_seconds", COUNTER, "wr.times", _NS, "Time spent on writes."),
    _Metric("guest_disk_flushes", COUNTER, "fl.reqs", 1, "Flushes of a disk."),
    _Metric("guest_disk_flush_seconds", COUNTER, "fl.times", _NS, "Time spent on flushes."),
    _Metric("guest_disk_capacity_bytes", GAUGE, "capacity", 1,
        "Size of a disk as the guest's system sees it."),
    _Metric("guest_disk_allocation_bytes", GAUGE, "allocation", 1,
        "Highest offset in a disk's file or device that has been written."),
    _Metric("guest_disk_physical_bytes", GAUGE, "physical", 1,
        "Size of a disk's file or device."),
)  # fmt: skip
_NIC = (
    _Metric("guest_network_received_bytes", COUNTER, "rx.bytes", 1, "Bytes received by a NIC."),
    _Metric("guest_network_received_packets", COUNTER, "rx.pkts", 1, "Packets received."),
    _Metric("guest_network_receive_errors", COUNTER, "rx.errs", 1, "Packets received with errors."),
    _Metric("guest_network_receive_drops", COUNTER, "rx.drop", 1, (
        "Received packets that were dropped."
    )),
    _Metric("guest_network_sent_bytes", COUNTER, "tx.bytes", 1, "Bytes sent by a NIC."),
    _Metric("guest_network_sent_packets", COUNTER, "tx.pkts", 1, "Packets sent."),
    _Metric("guest_network_send_errors", COUNTER, "tx.errs", 1, "Packets sent with errors."),
    _Metric("guest_network_send_drops", COUNTER, "tx.drop", 1,
        "Packets to send that were dropped."),
)  # fmt: skip
# more devices than a guest ever has; libvirt's answer is not trusted beyond that
_MAX_PARTS = 4096

# (prefix of a device's keys in libvirt's answer, labels of the device)
_Part = tuple[str, Labels]
# a device of a guest with all labels of its samples
_LabelledPart = tuple[GuestStats, str, Labels]
_Parts = Callable[[dict[str, Any]], Iterator[_Part]]


def families(guests: Sequence[GuestStats]) -> Iterator[Family]:
    """The Families of all guests; each is computed when it is requested."""
    yield Family(
        "guest_state", GAUGE, "1 for the guest's current state.",
        (Sample({**guest.labels, "state": guest.state}, 1) for guest in guests),
    )  # fmt: skip
    yield Family(
        "guest_pending_changes", GAUGE,
        "Changes of the guest's definition that take effect at its next start.",
        (Sample(guest.labels, guest.pending) for guest in guests if guest.pending is not None),
    )  # fmt: skip
    for metric in _GUEST:
        yield _family(metric, _guest_samples(metric, guests))
    yield Family(
        "guest_memory_used_bytes", GAUGE,
        "Memory that the guest's system uses, from its balloon driver.", _memory_used(guests),
    )  # fmt: skip
    for metrics, parts in ((_VCPU, _vcpus), (_DISK, _disks), (_NIC, _nics)):
        # once for all metrics: the writer caches labels by identity
        labelled_parts = [
            (guest, begin, {**guest.labels, **labels})
            for guest in guests for begin, labels in parts(guest.stats)
        ]  # fmt: skip
        for metric in metrics:
            yield _family(metric, _part_samples(metric, labelled_parts))


def _family(metric: _Metric, samples: Iterator[Sample]) -> Family:
    return Family(metric.name, metric.kind, metric.help_text, samples)


def _number(value: object) -> float | None:
    """The value that libvirt reports if it is a number."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if fits and value >= 0 else None  # type: ignore[operator, return-value]


def _guest_samples(metric: _Metric, guests: Sequence[GuestStats]) -> Iterator[Sample]:
    for guest in guests:
        value = _number(guest.stats.get(metric.key))
        if value is not None:
            yield Sample(guest.labels, value * metric.factor)


def _memory_used(guests: Sequence[GuestStats]) -> Iterator[Sample]:
    for guest in guests:
        available = _number(guest.stats.get("balloon.available"))
        usable = _number(guest.stats.get("balloon.usable"))
        if available is not None and usable is not None:
            yield Sample(guest.labels, max(0, available - usable) * _KIB)


def _part_samples(metric: _Metric, labelled_parts: Sequence[_LabelledPart]) -> Iterator[Sample]:
    for guest, begin, labels in labelled_parts:
        value = _number(guest.stats.get(begin + metric.key))
        if value is not None:
            yield Sample(labels, value * metric.factor)


def _numbers(stats: dict[str, Any], kind: str) -> range:
    count = _number(stats.get(kind))
    return range(min(int(count or 0), _MAX_PARTS))


def _vcpus(stats: dict[str, Any]) -> Iterator[_Part]:
    for number in _numbers(stats, "vcpu.maximum"):
        yield f"vcpu.{number}.", {"vcpu": str(number)}


def _disks(stats: dict[str, Any]) -> Iterator[_Part]:
    yield from _named(stats, "block")


def _nics(stats: dict[str, Any]) -> Iterator[_Part]:
    yield from _named(stats, "net")


def _named(stats: dict[str, Any], kind: str) -> Iterator[_Part]:
    """The devices of a kind that have a name; each name once."""
    names = set()
    for number in _numbers(stats, f"{kind}.count"):
        name = stats.get(f"{kind}.{number}.name")
        if isinstance(name, str) and name not in names:
            names.add(name)
            yield f"{kind}.{number}.", {"device": name}
