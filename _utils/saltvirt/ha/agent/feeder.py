"""Feeds the watchdog, on a thread of its own: nothing else that the agent does comes before it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from saltvirt.ha.agent.watchdog import WatchdogDevice

log = logging.getLogger(__name__)


class Feeder:
    """Feeds while the lease holds, as the last step knew it: the proof counts time alone, so it
    does not matter what the agent is about meanwhile. clock: of this boot. every_s: between two
    feeds."""

    def __init__(
        self, watchdog: WatchdogDevice, clock: Callable[[], float], every_s: float
    ) -> None:
        self._watchdog, self._clock, self._every_s = watchdog, clock, every_s
        self._until_s: float | None = None
        self._guard = threading.Lock()
        self._stopped = threading.Event()

    def begin(self) -> None:
        """From now on."""
        threading.Thread(target=self._run, name="feeder", daemon=True).start()

    def end(self) -> None:
        """It feeds no more."""
        self._until_s = None
        self._stopped.set()

    def feed_until(self, end_s: float | None) -> None:
        """It may feed until then; None: not any more."""
        self._until_s = end_s
        self._feed()

    def _feed(self) -> None:
        """One thread at a time looks and feeds: ``HaPolicy.must_have_fired_s`` counts on one that
        is stopped between the two, not on two in a row."""
        with self._guard:
            until_s = self._until_s
            if until_s is not None and self._clock() < until_s:
                self._watchdog.feed()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._feed()
            except Exception as exc:  # a thread that ends is a host that is lost
                log.exception("the watchdog was not fed: %s", exc)
            self._stopped.wait(self._every_s)
