"""A runner's lines for the person who waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

# a line of progress that no other may take the place of: in a log, so many seconds apart
LOG_INTERVAL_S = 10


class ProgressDisplay:
    """The terminal of ``salt-run``, or the log that it is written to. Threads may share it: Salt's
    channel breaks when two fire at once.

    functions: the runner's ``__salt__``. outputter: which draws the events. silent: clean data
    was asked for, so nothing is shown.
    """

    def __init__(
        self, functions: Mapping[str, Callable[..., Any]], outputter: str, silent: bool = False
    ) -> None:
        self._channel = None if silent else _channel(functions)
        self._outputter = outputter
        self._updating = False
        self._tenth: float | None = None
        self._logged = 0.0
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """A line that stays."""
        with self._lock:
            self._updating, self._tenth = False, None
            self._fire(text)

    def update(self, percent: float, text: str) -> None:
        """The line about long work: on a terminal it takes the place of the one before; in a
        log there is one for each tenth of the work, and at least every ten seconds."""
        with self._lock:
            now = time.monotonic()
            is_new_line = percent // 10 != self._tenth or now - self._logged > LOG_INTERVAL_S
            if is_new_line:
                self._tenth, self._logged = percent // 10, now
            self._fire(text, again=self._updating, passing=not is_new_line)
            self._updating = True

    def _fire(self, text: str, **options: Any) -> None:
        if self._channel is not None:
            data = {"message": text, "outputter": self._outputter, **options}
            self._channel.fire_event(data, "progress")


def _channel(functions: Mapping[str, Callable[..., Any]]) -> Any:
    """Salt gives its channel (``__jid_event__``) to one module of each name only, and several
    files of ours are named ``virt``: so it is looked for in all of them. Without one, nobody
    waits."""
    for name in functions:
        if name.startswith("virt."):
            channel = functions[name].__globals__.get("__jid_event__")
            if channel is not None:
                return channel
    return None
