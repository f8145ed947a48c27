"""Show a runner's progress on the terminal or in a log."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# the minimum interval between lines of progress in a log
LOG_INTERVAL_S = 10
# Salt's channel breaks if two threads fire at once
_firing = threading.Lock()
# the number of calls of ``several`` that have not ended
_several: list[None] = []


@contextlib.contextmanager
def several() -> Iterator[None]:
    """Show only permanent lines during the block, because several operations run at once: a line
    that replaces the previous one would replace another operation's."""
    _several.append(None)
    try:
        yield
    finally:
        _several.pop()


class ProgressDisplay:
    """The terminal of ``salt-run``, or the log that its output is written to. Threads may share it.

    functions: the runner's
    ``__salt__``. outputter: renders the events. silent: show nothing, because the output is data.
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
        """Show a permanent line."""
        with self._lock:
            self._updating, self._tenth = False, None
            self._fire(text)

    def update(self, percent: float, text: str) -> None:
        """Show progress. On a terminal the line replaces the previous one.

        In a log there is a line for each tenth of the work, and at least every ten seconds.
        """
        if _several:
            return
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
            with _firing:
                self._channel.fire_event(data, "progress")


def _channel(functions: Mapping[str, Callable[..., Any]]) -> Any:
    """Find Salt's channel for progress events (``__jid_event__``).

    Salt passes it to only one module of each name, and several files are named ``virt``, so all of
    them are searched. Without a channel no
    client waits for the runner.
    """
    for name in functions:
        if name.startswith("virt."):
            channel = functions[name].__globals__.get("__jid_event__")
            if channel is not None:
                return channel
    return None
