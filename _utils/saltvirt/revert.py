"""A stack of undos: each step that changes something pushes how to take it back."""

import logging

log = logging.getLogger(__name__)


class Revert:
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

    def __init__(self):
        self._undos = []
        self.failed = []

    def push(self, what, function, *args, **kwargs):
        """Remember an undo. ``what`` is the words for the log, e.g. ``delete /x/y.qcow2``."""
        self._undos.append((what, function, args, kwargs))

    def success(self):
        """Everything is done and confirmed: forget the undos."""
        self._undos.clear()

    def run(self):
        """Undo everything now, newest first."""
        while self._undos:
            what, function, args, kwargs = self._undos.pop()
            try:
                function(*args, **kwargs)
            except Exception as exc:
                log.error("could not undo: %s: %s", what, exc)
                self.failed.append(f"{what}: {exc}")

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.run()
        return False
