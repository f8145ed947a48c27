"""The steps of an operation: lines for the person who waits, events for reactors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from saltvirt import errors, sanitize
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.progress import ProgressDisplay
from saltvirt.operations.core import result

# a runner's ``__salt__``
Functions = Mapping[str, Callable[..., Any]]


class Lines(Protocol):
    """Where a person sees what is done, such as a fleet.progress.Screen."""

    def line(self, text: str) -> None:
        """A line that stays."""

    def update(self, percent: float, text: str) -> None:
        """The line about long work."""


class OneByOne:
    """A screen for many at once: each step is a line, and no line takes another's place."""

    def __init__(self, shown_on: Lines | None) -> None:
        self._screen = shown_on

    def line(self, text: str) -> None:
        """A line that stays."""
        if self._screen:
            self._screen.line(text)

    def update(self, percent: float, text: str) -> None:
        """How far a copy is would be lost among the lines of the others."""


def screen(functions: Functions, opts: dict[str, Any]) -> ProgressDisplay:
    """Where a runner shows its lines. functions, opts: its ``__salt__`` and ``__opts__``."""
    return ProgressDisplay(functions, result.OUTPUTTER, bool(opts.get("output")))


def of_runner(fleet: Fleet, guest: str, operation: str, functions: Functions) -> Report:
    """The Report of an operation that a runner's function begins."""
    return Report(fleet, guest, operation, screen(functions, fleet.opts))


class Report:
    """One operation on one guest.

    fleet: where events go. guest, operation: part of the tag, ``salt/virt/<guest>/<operation>``.
    screen: Lines, None where nobody watches.
    """

    def __init__(
        self, fleet: Fleet, guest: str, operation: str, screen: Lines | None = None
    ) -> None:
        self.fleet = fleet
        self.guest = guest
        self.tag = f"salt/virt/{guest}/{operation}"
        self.screen = screen

    def show(self, text: str) -> None:
        """A line for the person who waits."""
        if self.screen:
            self.screen.line(sanitize.one_line(text))

    def step(self, step: str, text: str, **data: Any) -> None:
        """Something happened: a line, and the event ``<tag>/<step>`` with the text and data."""
        self.show(text)
        self._send_event(step, text, data)

    def done(self, text: str, **data: Any) -> None:
        """The event ``<tag>/done``. The line is the operation's own answer."""
        self._send_event("done", text, data)

    def _send_event(self, step: str, text: str, data: dict[str, Any]) -> None:
        event = {"guest": self.guest, "message": sanitize.one_line(text), **data}
        self.fleet.fire_event(f"{self.tag}/{step}", event)

    def progress(self, percent: float, text: str) -> None:
        """The line about long work."""
        if self.screen:
            self.screen.update(percent, sanitize.one_line(text))

    def failed(self, error: errors.VirtError) -> None:
        """The event ``<tag>/failed``. The line is the operation's own answer."""
        self.fleet.fire_event(f"{self.tag}/failed", {"guest": self.guest, "message": str(error)})

    def host_event(self, tag: str, data: dict[str, Any]) -> None:
        """For Fleet.ask's ``watch``: what a host reports of its own steps."""
        text = f"{self.guest}: {data.get('message') or tag.rsplit('/', 1)[-1]}"
        if data.get("percent") is None:
            self.show(text)
        else:
            self.progress(data["percent"], text)
