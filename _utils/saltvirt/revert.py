"""A stack of undo operations: each step that changes something pushes its undo."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


class UndoStack:
    """Run the pushed undos, newest first, unless :meth:`success` was called.

    Use it as a context manager. If an undo fails, it is logged, the others are still run, and
    :attr:`failed` lists it, so that the caller can report what has to be cleaned up::

        with UndoStack() as undo:
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
        """Push an undo. ``description`` is for the log, for example ``delete /x/y.qcow2``."""
        self._undos.append((description, function, args, kwargs))

    def success(self) -> None:
        """Discard the undos, because the operation is complete and confirmed."""
        self._undos.clear()

    def mark(self) -> int:
        """A mark for :meth:`run`: undos that are pushed from now on are newer."""
        return len(self._undos)

    def run(self, mark: int = 0) -> None:
        """Run all undos now, newest first; with a mark, only newer ones."""
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
