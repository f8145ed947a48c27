"""Families as Prometheus reads them: OpenMetrics or its older text, by the client library."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

from saltvirt import errors
from saltvirt.metrics.family import PREFIX, Family

try:
    from prometheus_client import Metric, exposition

    IMPORT_ERROR: ImportError | None = None
except ImportError as exc:
    IMPORT_ERROR = exc

_END = b"# EOF\n"


def require_library() -> None:
    """Raises Unsupported, in one line, where the client library is missing."""
    if IMPORT_ERROR is not None:
        raise errors.Unsupported(
            f"prometheus_client is missing in {sys.executable}: {IMPORT_ERROR}. Install it there: "
            f"{sys.executable} -m pip install prometheus-client, or apply the formula's "
            "libvirt.metrics state"
        )


class _Alone:
    """A registry of one metric, as the library's writers ask it."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self.metric]


def _metric(family: Family) -> Metric:
    name = PREFIX + family.name
    metric = Metric(name, family.says, family.kind)
    own = f"{name}_total" if family.kind == "counter" else name
    for labels, value in family.samples:
        metric.add_sample(own, labels, value)
    return metric


def written(families: Iterable[Family], accept: str = "") -> tuple[str, Iterator[bytes]]:
    """(the content's type, the text in pieces). A piece is one Family: all of them are never in
    memory at once. accept: what the reader takes, as in HTTP; of nothing it is the older text.

    Raises Unsupported without the library.
    """
    require_library()
    writer, kind = exposition.choose_encoder(accept)
    return kind, _pieces(families, writer)


def _pieces(families: Iterable[Family], writer: Callable[..., bytes]) -> Iterator[bytes]:
    end = b""
    for family in families:
        piece = writer(_Alone(_metric(family)))
        if piece.endswith(_END):
            piece, end = piece[: -len(_END)], _END
        yield piece
    yield end
