"""One hypervisor as a source of metrics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

from saltvirt import errors, settings
from saltvirt.metrics.exporter.readers import OnDemandReader, PeriodicReader
from saltvirt.metrics.host import read
from saltvirt.metrics.model.family import Family
from saltvirt.metrics.model.guests import GuestStats

log = logging.getLogger(__name__)

# Prometheus' default timeout is 10 s; storage that does not respond takes 5 s to detect
TIMEOUT_S = 8


class HostMetrics:
    """One hypervisor. get: Salt's ``config.get``. name: its minion id. stop: set when another
    version of the library was synced."""

    def __init__(
        self,
        get: settings.Get,
        name: str,
        certificates: read.Certificates,
        stop: threading.Event,
    ) -> None:
        self.name, self.stop = name, stop
        self._last_error = ""
        access = settings.connection(get, {})
        self._guests = OnDemandReader(lambda: read.read_guests(access, name), TIMEOUT_S)
        self.reads: dict[str, Callable[[], list[Family]]] = {
            "capacity": lambda: read.read_capacity(get, name),
            "files": lambda: read.read_files(get, name, certificates),
        }

    def readers(self, interval_s: float) -> dict[str, PeriodicReader[list[Family]]]:
        """The periodic readers by name."""
        return {
            part: PeriodicReader(read_part, interval_s, part)
            for part, read_part in self.reads.items()
        }

    def now(self) -> Iterator[Family]:
        """The metrics that are read for each request."""
        guests: list[GuestStats] | None = None
        error = ""
        try:
            guests = self._guests()
        except errors.StaleLibrary as exc:
            error = exc.text
            self.stop.set()
        except errors.VirtError as exc:
            error = exc.text
        if error and error != self._last_error:
            log.error("metrics: %s", error)
        self._last_error = error
        return read.families(guests, self.name)
