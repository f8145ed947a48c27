"""Limits of a disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.put import is_given, put
from saltvirt.errors import InvalidInput
from saltvirt.spec.base import REMOVE
from saltvirt.spec.iotune import LIMITS, TOTALS

if TYPE_CHECKING:
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.spec.iotune import IoTuneSpec
    from saltvirt.xml.devices.disk import Disk
    from saltvirt.xml.devices.iotune import IoTune

# QEMU refuses more
LARGEST = 10**15


def apply(spec: DiskSpec, disk: Disk) -> None:
    """Apply a DiskSpec's iotune to its disk."""
    if spec.iotune is REMOVE:
        disk.iotune = None
    elif spec.iotune is not None:
        _replaced(spec.iotune, disk.iotune)
        put(disk.iotune, spec.iotune)
        _remove_idle(spec.iotune, disk.iotune)
        _check(spec, disk.iotune)


def _replaced(spec: IoTuneSpec, iotune: IoTune) -> None:
    """Remove limits that those of the spec replace: of the sum, or of reading and writing."""
    for total, pair in TOTALS.items():
        replaced = pair if is_given(getattr(spec, total)) else ()
        if any(is_given(getattr(spec, word)) for word in pair):
            replaced = (total,)
        for word in replaced:
            for name in (word, f"{word}_max", f"{word}_max_length"):
                setattr(iotune, name, None)


def _remove_idle(spec: IoTuneSpec, iotune: IoTune) -> None:
    """Remove settings of an existing disk that are nothing without a limit, unless requested."""
    if not is_given(spec.size_iops_sec) and not _limits(iotune, "iops"):
        iotune.size_iops_sec = None
    if not is_given(spec.group_name) and not _limits(iotune):
        iotune.group_name = None


def _limits(iotune: IoTune, kind: str = "") -> list[str]:
    """The limits that are set, of bytes or of operations."""
    return [word for word in LIMITS if kind in word and getattr(iotune, word)]


def _check(spec: DiskSpec, iotune: IoTune) -> None:
    if iotune.size_iops_sec and not _limits(iotune, "iops"):
        raise InvalidInput(f"disk {spec.name}: iotune: size_iops_sec needs a limit of operations")
    if iotune.group_name and not _limits(iotune):
        raise InvalidInput(f"disk {spec.name}: iotune: group_name needs a limit")
    for word in LIMITS:
        limit, burst = getattr(iotune, word), getattr(iotune, f"{word}_max")
        seconds = getattr(iotune, f"{word}_max_length")
        if max(limit or 0, burst or 0) * (seconds or 1) > LARGEST:
            raise InvalidInput(
                f"disk {spec.name}: iotune: {word}, {word}_max and {word}_max multiplied by "
                f"{word}_max_length must be at most {LARGEST}"
            )
        if burst and not limit:
            raise InvalidInput(f"disk {spec.name}: iotune: {word}_max needs {word}")
        if limit and burst and burst <= limit:
            raise InvalidInput(
                f"disk {spec.name}: iotune: {word}_max ({burst}) must be more than {word} ({limit})"
            )
        if seconds and not burst:
            raise InvalidInput(f"disk {spec.name}: iotune: {word}_max_length needs {word}_max")
