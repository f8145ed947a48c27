"""Render Families for Prometheus with its client library, as OpenMetrics or in the older text
format.

The library renders the head of each Family and its first sample. If the line of that sample equals
the one rendered here, byte for byte, the other samples are rendered here, which is ten times
faster; otherwise by the library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from saltvirt import errors
from saltvirt.metrics.model.family import PREFIX, Family, Labels, Sample

try:
    from prometheus_client import Metric, exposition
    from prometheus_client.utils import floatToGoString as number

    IMPORT_ERROR: ImportError | None = None
except ImportError as exc:
    IMPORT_ERROR = exc

_END = b"# EOF\n"
# the library's function that renders a registry
Writer = Callable[[Any], bytes]


def require_library() -> None:
    """Raise Unsupported with one line if the client library is missing."""
    if IMPORT_ERROR is not None:
        raise errors.Unsupported(
            f"prometheus_client is missing in {sys.executable}: {IMPORT_ERROR}. Run "
            f"{sys.executable} -m pip install prometheus-client, or apply the formula's "
            "libvirt.metrics state"
        )


class _SingleRegistry:
    """A registry with one metric, for the library's writers."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self.metric]


def _own_name(family: Family) -> str:
    name = PREFIX + family.name
    return f"{name}_total" if family.kind == "counter" else name


def _by_library(family: Family, samples: Iterable[Sample], writer: Writer) -> bytes:
    metric = Metric(PREFIX + family.name, family.help_text, family.kind)
    for labels, value in samples:
        metric.add_sample(_own_name(family), labels, value)
    return writer(_SingleRegistry(metric))


def render(families: Iterable[Family], accept: str = "") -> tuple[str, Iterator[bytes]]:
    """(content type, chunks of the text). A chunk is one Family, so that they are never in memory
    together. accept: the Accept header; the older text format if it is empty.

    Raises Unsupported if the library is missing.
    """
    require_library()
    writer, kind = exposition.choose_encoder(accept)
    return kind, _pieces(families, writer)


def _pieces(families: Iterable[Family], writer: Writer) -> Iterator[bytes]:
    end, cache = b"", _LabelCache()
    for family in families:
        piece = _render_family(family, writer, cache)
        if piece.endswith(_END):
            piece, end = piece[: -len(_END)], _END
        yield piece
    yield end


def _render_family(family: Family, writer: Writer, cache: _LabelCache) -> bytes:
    """One Family in the library's format."""
    samples, name = iter(family.samples), _own_name(family)
    first = list(islice(samples, 1))
    encoded = _by_library(family, first, writer)
    if not first:
        return encoded
    end = _END if encoded.endswith(_END) else b""
    if not encoded.endswith(_line(name, first[0], cache).encode() + end):
        return _by_library(family, [*first, *samples], writer)
    lines = "".join([_line(name, sample, cache) for sample in samples])
    return encoded[: len(encoded) - len(end)] + lines.encode() + end


def _line(name: str, sample: Sample, cache: _LabelCache) -> str:
    value: str = number(sample.value)  # type: ignore[no-untyped-call]
    return f"{name}{cache.labels(sample.labels)} {value}\n"


class _LabelCache:
    """Rendered labels, which many metrics share."""

    def __init__(self) -> None:
        # includes the labels, because their id could be reused otherwise
        self._entries: dict[int, tuple[Labels, str]] = {}

    def labels(self, labels: Labels) -> str:
        """The labels in braces, or nothing if there are none."""
        entry = self._entries.get(id(labels))
        if entry is None:
            entry = self._entries[id(labels)] = labels, _in_braces(labels)
        return entry[1]


def _in_braces(labels: Labels) -> str:
    pairs = ",".join([
        '{}="{}"'.format(
            name, text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        )
        for name, text in sorted(labels.items())
    ])  # fmt: skip
    return f"{{{pairs}}}" if pairs else ""
