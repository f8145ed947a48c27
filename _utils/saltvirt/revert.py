"""A stack of undos: each step that changes something pushes how to take it back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


class UndoStack:
    """Runs the pushed undos, newest first, unless :meth:`success` was called.

    Use as a context manager. An undo that fails is logged and does not stop the
    others; what it was is kept in :attr:`failed`, so that the caller can name
    what a person has to clean up::

        with Revert() as undo:
            volume = create(...)
            undo.push(f"delete {volume}", delete, volume)
            ...
            undo.success()
    """

    def __init__(self) -> None:
        self._undos: list[tuple[str, Callable[..., object], Any, Any]] = []
        self.failed: list[str] = []

    def push(
        self, description: str, function: Callable[..., object], *args: Any, **kwargs: Any
    ) -> None:
        """Remember an undo. ``what`` is the words for the log, e.g. ``delete /x/y.qcow2``."""
        self._undos.append((description, function, args, kwargs))

    def success(self) -> None:
        """Everything is done and confirmed: forget the undos."""
        self._undos.clear()

    def mark(self) -> int:
        """For :meth:`run`: what is pushed from now on is newer than the mark."""
        return len(self._undos)

    def run(self, mark: int = 0) -> None:
        """Undo everything now, newest first; with a mark, only what is newer than it."""
        while len(self._undos) > mark:
            description, function, args, kwargs = self._undos.pop()
            try:
                function(*args, **kwargs)
            except Exception as exc:
                log.error("could not undo: %s: %s", description, exc)
                self.failed.append(f"{description}: {exc}")

    def __enter__(self) -> UndoStack:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.run()
