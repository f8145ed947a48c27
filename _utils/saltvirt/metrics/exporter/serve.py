"""Run the exporter until it is stopped."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator, Mapping

from saltvirt.metrics.exporter import source
from saltvirt.metrics.exporter.options import ServeOptions
from saltvirt.metrics.exporter.readers import PeriodicReader
from saltvirt.metrics.exporter.server import PATH, Exporter
from saltvirt.metrics.model.family import Family, Labels
from saltvirt.system.tls_listener import CertificateFiles

log = logging.getLogger(__name__)


def run(
    options: ServeOptions,
    labels: Labels,
    sources: tuple[Callable[[], Iterator[Family]], Mapping[str, PeriodicReader[list[Family]]]],
    stop: threading.Event,
    tls: CertificateFiles | None = None,
) -> None:
    """Serve metrics. sources: ``now`` and ``readers`` of :func:`source.families`. Raises the errors
    of Exporter."""
    now, readers = sources
    gc.freeze()  # a collection would write to all that is shared with the minion
    with Exporter(
        options.address, options.port, lambda: source.families(labels, now, readers), tls
    ) as exporter:
        for reader in readers.values():
            reader.begin(stop)
        threading.Thread(target=exporter.serve_forever, daemon=True).start()
        log.info("metrics: %s port %s, %s", options.address, options.port, PATH)
        stop.wait()
        exporter.shutdown()
