"""One hypervisor as the exporter asks it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

from saltvirt import errors, settings
from saltvirt.metrics.family import Family
from saltvirt.metrics.guests import GuestSeen
from saltvirt.metricserve.look import Fresh, Look
from saltvirt.metricshost import read

log = logging.getLogger(__name__)

# Prometheus waits for 10 s if it is not told otherwise; storage that dies is waited for 5 s
WITHIN_S = 8


class Host:
    """One hypervisor. get: Salt's ``config.get``. name: its minion id. stop: set
    when another library was synced."""

    def __init__(
        self,
        get: settings.Get,
        name: str,
        certificates: read.Certificates,
        stop: threading.Event,
    ) -> None:
        self.name, self.stop = name, stop
        self._why = ""
        where = settings.connection(get, {})
        self._guests = Fresh(lambda: read.of_guests(where, name), WITHIN_S)
        self.reads: dict[str, Callable[[], list[Family]]] = {
            "room": lambda: read.of_room(get, name),
            "files": lambda: read.of_files(get, name, certificates),
        }

    def looks(self, every_s: float) -> dict[str, Look[list[Family]]]:
        """What is read from time to time, by its name."""
        return {part: Look(found, every_s, part) for part, found in self.reads.items()}

    def now(self) -> Iterator[Family]:
        """What is read for who asks."""
        found: list[GuestSeen] | None = None
        why = ""
        try:
            found = self._guests()
        except errors.StaleLibrary as exc:
            why = exc.text
            self.stop.set()
        except errors.VirtError as exc:
            why = exc.text
        if why and why != self._why:
            log.error("metrics: %s", why)
        self._why = why
        return read.families(found, self.name)
