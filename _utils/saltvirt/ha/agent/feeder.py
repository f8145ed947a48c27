"""Feed the watchdog on a thread of its own, independent of the agent's other work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from saltvirt.ha.agent.watchdog import WatchdogDevice

log = logging.getLogger(__name__)


class Feeder:
    """Feeds the watchdog while the lease of the last step holds. The proof depends only on time, so
    the agent's other work does not matter. clock: of this boot. every_s: the interval."""

    def __init__(
        self, watchdog: WatchdogDevice, clock: Callable[[], float], every_s: float
    ) -> None:
        self._watchdog, self._clock, self._every_s = watchdog, clock, every_s
        self._until_s: float | None = None
        self._guard = threading.Lock()
        self._stopped = threading.Event()

    def begin(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="feeder", daemon=True).start()

    def end(self) -> None:
        """Stop feeding."""
        self._until_s = None
        self._stopped.set()

    def feed_until(self, end_s: float | None) -> None:
        """Allow feeding until that time; None: stop feeding."""
        self._until_s = end_s
        self._feed()

    def _feed(self) -> None:
        """Feed the watchdog if allowed. Only one thread checks and feeds at a time:
        ``HaPolicy.must_have_fired_s`` accounts for one delay between the check and the feeding, not
        for two."""
        with self._guard:
            until_s = self._until_s
            if until_s is not None and self._clock() < until_s:
                self._watchdog.feed()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._feed()
            except Exception as exc:  # if this thread ended, the host would lose its power
                log.exception("cannot feed the watchdog: %s", exc)
            self._stopped.wait(self._every_s)
