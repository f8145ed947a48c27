"""Guests that have got a host on this master and are not there yet: what is placed at the same
moment takes room beside them.

A host says itself whether it has room. Room for the loss of hosts is of all of them together, so
where that is kept each guest is written down: a file that is locked while its operation lasts.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from saltvirt import errors, names
from saltvirt.fleet import private
from saltvirt.operations import held, keepers
from saltvirt.placement import facts

# what ended so long ago is missing in nobody's picture of the hosts
_OLD_S = 24 * 3600


class Promises:
    """What one operation has promised. The hosts are asked after it was made: who ended before that
    is where they say."""

    def __init__(self, opts: held.Opts, keeper: keepers.Keeper) -> None:
        self._opts, self._keeper = opts, keeper
        self._folder = Path(opts["cachedir"]) / "virt" / "promised"
        self._handles: dict[str, int] = {}
        self._since = time.time()
        self._seen: dict[str, str] = {}
        self._room: keepers.Room | None = None

    @contextlib.contextmanager
    def turn(self, room: keepers.Room | None, hosts: Collection[facts.Host]) -> Iterator[None]:
        """Alone on this master for the block, with all in the room that others have promised.

        hosts: as they said. Raises OperationFailed after ``virt:queue_timeout``."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path, what = self._folder / ".turn", "a placement beside virt:ha:reserve"
        handle = held.wait(self._opts, lambda: held.take(path, what), lambda: held.owner(path))
        try:
            if room:
                self._see(room, {guest.name for host in hosts for guest in host.guests})
            yield
        finally:
            os.close(handle)

    def _see(self, room: keepers.Room, there: Collection[str]) -> None:
        if room is not self._room:
            self._room, self._seen = room, {}
        for path in self._folder.glob("[!.]*"):
            if path.name in self._handles or path.name in there or not self._counts(path):
                continue
            promise = _read(path)
            if promise and self._seen.get(path.name) != promise["host"]:
                self._seen[path.name] = promise["host"]
                room.take(promise["host"], promise["guest"], self._wish(promise["ha"]))

    def _counts(self, path: Path) -> bool:
        """Whether it is still to come, or came when the hosts may have been asked already."""
        if held.is_taken(path):
            return True
        try:
            ended = path.stat().st_mtime
        except FileNotFoundError:
            return False
        if ended < time.time() - _OLD_S:
            path.unlink(missing_ok=True)
        return ended >= self._since

    def _wish(self, ha: Any) -> Any:
        with contextlib.suppress(errors.VirtError):  # of a rule that is gone
            return self._keeper.wish(ha) or None
        return None

    def make(self, host: str, guest: facts.Guest, ha: Any) -> None:
        """The guest gets the host, and not the one that it was promised before. ha: what virt.init
        was told."""
        path = self._folder / names.guest(guest.name)
        if guest.name not in self._handles and held.is_taken(path):
            return  # by another one of this name: one of the two will be refused
        text = json.dumps({"host": host, "guest": guest.to_answer(), "ha": ha})
        handle = private.write_locked(str(path), text)
        self._close(guest.name)
        self._handles[guest.name] = handle

    def withdraw(self, name: str) -> None:
        """It does not come after all."""
        if name in self._handles:
            (self._folder / name).unlink(missing_ok=True)
            self._close(name)

    def end(self) -> None:
        """All of it is where it was promised."""
        for name, handle in [*self._handles.items()]:
            os.utime(handle)
            self._close(name)

    def _close(self, name: str) -> None:
        if name in self._handles:
            os.close(self._handles.pop(name))


@contextlib.contextmanager
def of(opts: held.Opts, keeper: keepers.Keeper | None) -> Iterator[Promises | None]:
    """The Promises of an operation for the block; None where no room is kept."""
    if keeper is None or not keeper.keeps_room:
        yield None
        return
    made = Promises(opts, keeper)
    try:
        yield made
    finally:
        made.end()


def turn(
    promises: Promises | None, room: keepers.Room | None, hosts: Collection[facts.Host]
) -> contextlib.AbstractContextManager[None]:
    """As Promises.turn; nothing without any."""
    return promises.turn(room, hosts) if promises else contextlib.nullcontext()


def _read(path: Path) -> dict[str, Any] | None:
    """``host``, ``guest`` (a Guest), ``ha``; None of a file that is damaged or gone."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        guest = facts.Guest.from_answer({**told["guest"], "name": path.name}, str(path))
        return {"host": str(told["host"]), "guest": guest, "ha": told["ha"]}
    except (OSError, ValueError, TypeError, LookupError, errors.BadAnswer):
        return None
