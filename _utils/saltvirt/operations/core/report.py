"""Report the steps of an operation: lines for the terminal, events for reactors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from saltvirt import errors, sanitize
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.progress import ProgressDisplay
from saltvirt.operations.core import result

# a runner's ``__salt__``
Functions = Mapping[str, Callable[..., Any]]


class Lines(Protocol):
    """An output for steps, such as a fleet.progress.ProgressDisplay."""

    def line(self, text: str) -> None:
        """Print a line."""

    def update(self, percent: float, text: str) -> None:
        """Replace the progress line."""


class OneByOne:
    """An output for concurrent operations: each step is a line, without a progress line, and a
    warning that several guests have in common is printed once."""

    def __init__(self, shown_on: Lines | None) -> None:
        self._screen = shown_on
        self._warnings: set[str] = set()
        self._lock = threading.Lock()

    def is_new(self, warning: str) -> bool:
        """True if no operation has had this warning yet."""
        with self._lock:
            is_new = warning not in self._warnings
            self._warnings.add(warning)
        return is_new

    def line(self, text: str) -> None:
        """Print a line."""
        if self._screen:
            self._screen.line(text)

    def update(self, percent: float, text: str) -> None:
        """Ignore the progress: it would disappear among the lines of the other operations."""


def screen(functions: Functions, opts: dict[str, Any]) -> ProgressDisplay:
    """Return the display of a runner. functions, opts: its ``__salt__`` and ``__opts__``."""
    return ProgressDisplay(functions, result.OUTPUTTER, bool(opts.get("output")))


def of_runner(fleet: Fleet, guest: str, operation: str, functions: Functions) -> Report:
    """Return the Report of an operation that a runner function starts."""
    return Report(fleet, guest, operation, screen(functions, fleet.opts))


class Report:
    """Reports the steps of one operation on one guest.

    fleet: sends the events. guest, operation: parts of the tag, ``salt/virt/<guest>/<operation>``.
    screen: Lines, or None.
    """

    def __init__(
        self, fleet: Fleet, guest: str, operation: str, screen: Lines | None = None
    ) -> None:
        self.fleet = fleet
        self.guest = guest
        self.tag = f"salt/virt/{guest}/{operation}"
        self.screen = screen

    def show(self, text: str) -> None:
        """Print a line."""
        if self.screen:
            self.screen.line(sanitize.one_line(text))

    def step(self, step: str, text: str, **data: Any) -> None:
        """Print a line, and fire the event ``<tag>/<step>`` with the text and data."""
        self.show(text)
        self._send_event(step, text, data)

    def done(self, text: str, **data: Any) -> None:
        """Fire the event ``<tag>/done``. The operation's answer is the line."""
        self._send_event("done", text, data)

    def _send_event(self, step: str, text: str, data: dict[str, Any]) -> None:
        event = {"guest": self.guest, "message": sanitize.one_line(text), **data}
        self.fleet.fire_event(f"{self.tag}/{step}", event)

    def progress(self, percent: float, text: str) -> None:
        """Update the progress line."""
        if self.screen:
            self.screen.update(percent, sanitize.one_line(text))

    def failed(self, error: errors.VirtError) -> None:
        """Fire the event ``<tag>/failed``. The operation's answer is the line."""
        self.fleet.fire_event(f"{self.tag}/failed", {"guest": self.guest, "message": str(error)})

    def host_event(self, tag: str, data: dict[str, Any]) -> None:
        """Show a step that a host reports; a ``watch`` callback for Fleet.ask."""
        step = tag.rsplit("/", 1)[-1]
        message = str(data.get("message") or step)
        text = f"{self.guest}: {message}"
        if step == "warning" and isinstance(self.screen, OneByOne):
            if self.screen.is_new(message):
                self.show(text)
        elif data.get("percent") is None:
            self.show(text)
        else:
            self.progress(data["percent"], text)
