"""The user's arguments for limits of a disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt import units
from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key
from saltvirt.xml.devices.iotune import IoTune

# libvirt limits either the sum, or reading and writing
TOTALS = {
    total: tuple(total.replace("total", word) for word in ("read", "write"))
    for total in ("total_bytes_sec", "total_iops_sec")
}
LIMITS = (*TOTALS, *(word for pair in TOTALS.values() for word in pair))


def _bytes(value: Any, argument: str) -> int:
    """A size in bytes; numbers without a unit are bytes."""
    return units.parse_bytes(value, "bytes", argument)


@dataclass
class IoTuneSpec(Spec):
    """``iotune`` of a disk: bytes and operations per second, each also in bursts (``_max``) of
    some seconds (``_max_length``)."""

    total_bytes_sec: int | None = key(_bytes, xml=IoTune.total_bytes_sec)
    read_bytes_sec: int | None = key(_bytes, xml=IoTune.read_bytes_sec)
    write_bytes_sec: int | None = key(_bytes, xml=IoTune.write_bytes_sec)
    total_iops_sec: int | None = key(values.count, xml=IoTune.total_iops_sec)
    read_iops_sec: int | None = key(values.count, xml=IoTune.read_iops_sec)
    write_iops_sec: int | None = key(values.count, xml=IoTune.write_iops_sec)
    total_bytes_sec_max: int | None = key(_bytes, xml=IoTune.total_bytes_sec_max)
    read_bytes_sec_max: int | None = key(_bytes, xml=IoTune.read_bytes_sec_max)
    write_bytes_sec_max: int | None = key(_bytes, xml=IoTune.write_bytes_sec_max)
    total_iops_sec_max: int | None = key(values.count, xml=IoTune.total_iops_sec_max)
    read_iops_sec_max: int | None = key(values.count, xml=IoTune.read_iops_sec_max)
    write_iops_sec_max: int | None = key(values.count, xml=IoTune.write_iops_sec_max)
    size_iops_sec: int | None = key(values.count, xml=IoTune.size_iops_sec)
    group_name: str | None = key(values.word, xml=IoTune.group_name)
    total_bytes_sec_max_length: int | None = key(
        values.count, xml=IoTune.total_bytes_sec_max_length
    )
    read_bytes_sec_max_length: int | None = key(values.count, xml=IoTune.read_bytes_sec_max_length)
    write_bytes_sec_max_length: int | None = key(
        values.count, xml=IoTune.write_bytes_sec_max_length
    )
    total_iops_sec_max_length: int | None = key(values.count, xml=IoTune.total_iops_sec_max_length)
    read_iops_sec_max_length: int | None = key(values.count, xml=IoTune.read_iops_sec_max_length)
    write_iops_sec_max_length: int | None = key(values.count, xml=IoTune.write_iops_sec_max_length)

    def check(self, argument: str) -> None:
        for total, pair in TOTALS.items():
            both = [word for word in pair if getattr(self, word)]
            if getattr(self, total) and both:
                raise InvalidInput(f"{argument}: give either {total} or {both[0]}")
