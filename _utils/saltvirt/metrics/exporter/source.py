"""The served metrics: values that are read for each request, and those that were read
periodically."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping

import saltvirt
from saltvirt import errors, units
from saltvirt.metrics.exporter import text
from saltvirt.metrics.exporter.readers import PeriodicReader
from saltvirt.metrics.model.family import Family, Labels, Sample, gauge, single_gauge
from saltvirt.system import atomic_file

Families = list[Family]
_FILE = re.compile(r"/[^\x00-\x1f\x7f]*\.prom")


def families(
    labels: Labels,
    now: Callable[[], Iterator[Family]],
    readers: Mapping[str, PeriodicReader[Families]],
) -> Iterator[Family]:
    """labels: of the exporter's own metrics. now: returns what is read for each request. readers:
    of periodic values, by name."""
    began_s = time.monotonic()
    yield single_gauge("exporter", "1; with the version of the exporting Salt Virt.",
              {**labels, "version": saltvirt.__version__}, 1)  # fmt: skip
    yield from now()
    results = {part: reader.last for part, reader in readers.items()}
    yield gauge("part_up", "1 if this part could be read the last time.",
                [Sample({**labels, "part": part}, int(when_s is not None))
                 for part, (_, when_s) in results.items()])  # fmt: skip
    yield gauge("part_timestamp_seconds", "Time when this part was read.",
                [Sample({**labels, "part": part}, when_s)
                 for part, (_, when_s) in results.items() if when_s is not None])  # fmt: skip
    for part_families, _ in results.values():
        yield from part_families or []
    yield single_gauge("export_seconds", "Time spent to read and render all metrics.", labels,
              time.monotonic() - began_s)  # fmt: skip


def export_once(
    labels: Labels,
    now: Callable[[], Iterator[Family]],
    readers: Mapping[str, PeriodicReader[Families]],
    path: object,
) -> str:
    """The same as text after reading everything, or the path of the file to which it was written.

    Raises InvalidInput, Unsupported, StaleLibrary, and OperationFailed if the file cannot be
    written.
    """
    if path is not None and not (isinstance(path, str) and _FILE.fullmatch(path)):
        raise errors.InvalidInput(
            f"path must be the absolute path of a file that ends with .prom, not "
            f"{units.short_repr(path)}"
        )
    text.require_library()
    for reader in readers.values():
        reader.read_once()
    _, pieces = text.render(families(labels, now, readers))
    data = b"".join(pieces)
    if path is None:
        return data.decode()
    _write(path, data)
    return path


def _write(path: str, data: bytes) -> None:
    """Write the file atomically, so that readers see the old or the new content."""
    try:
        part = atomic_file.unique_part(path)
        atomic_file.write(path, data, mode=0o644, durable=False, part=part)
    except OSError as exc:
        raise errors.OperationFailed(f"{path} cannot be written: {exc.strerror or exc}") from exc
