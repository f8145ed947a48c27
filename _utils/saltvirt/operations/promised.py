"""Guests that have got a host on this master and are not there yet: what is placed at the same
moment takes room beside them.

A host says itself whether it has room. Room for the loss of hosts is of all of them together, so
where that is kept each guest is written down: a file a guest, which counts while its operation has
another one locked.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from saltvirt import errors, names
from saltvirt.fleet import private
from saltvirt.operations import held, keepers
from saltvirt.placement import facts

# what ended so long ago is missing in nobody's picture of the hosts
_OLD_S = 24 * 3600
# what the name of an operation's locked file begins with
_OF = ".of-"


class _Promise(NamedTuple):
    """by: the operation. ha: what virt.init was told."""

    by: str
    host: str
    guest: facts.Guest
    ha: Any


class Promises:
    """What one operation has promised. The hosts are asked after it was made: who ended before that
    is where they say."""

    def __init__(self, opts: held.Opts, keeper: keepers.Keeper) -> None:
        self._opts, self._keeper = opts, keeper
        self._folder = Path(opts["cachedir"]) / "virt" / "promised"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._by = secrets.token_hex(8)
        # one handle, however many guests are promised
        self._handle = held.take(self._folder / f"{_OF}{self._by}", "promises of room")
        self._own: set[str] = set()
        self._since_s = time.time()
        self._seen: dict[str, float] = {}
        self._room: keepers.Room | None = None

    @contextlib.contextmanager
    def turn(self, room: keepers.Room | None, hosts: Collection[facts.Host]) -> Iterator[None]:
        """Alone on this master for the block, with all in the room that others have promised.

        hosts: as they said. Raises OperationFailed after ``virt:queue_timeout``."""
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
        for entry in os.scandir(self._folder):
            try:
                changed_s = entry.stat().st_mtime
            except FileNotFoundError:  # withdrawn right now
                continue
            if changed_s < time.time() - _OLD_S:
                self._tidy(entry)
            elif not (
                entry.name.startswith(".")
                or entry.name in self._own
                or entry.name in there
                or self._seen.get(entry.name) == changed_s
            ):
                self._seen[entry.name] = changed_s
                promise = _read(Path(entry.path))
                if promise and (self._lasts(promise.by) or changed_s >= self._since_s):
                    room.take(promise.host, promise.guest, self._wish(promise.ha))

    def _lasts(self, by: str) -> bool:
        """Whether the operation that promised it is still at work."""
        return held.is_taken(self._folder / f"{_OF}{by}")

    def _tidy(self, entry: os.DirEntry[str]) -> None:
        path = Path(entry.path)
        promise = None if entry.name.startswith(".") else _read(path)
        if not held.is_taken(path) and not (promise and self._lasts(promise.by)):
            path.unlink(missing_ok=True)

    def _wish(self, ha: Any) -> Any:
        with contextlib.suppress(errors.VirtError):  # of a rule that is gone
            return self._keeper.wish(ha) or None
        return None

    def make(self, host: str, guest: facts.Guest, ha: Any) -> None:
        """The guest gets the host, and not the one that it was promised before. ha: what virt.init
        was told."""
        path = self._folder / names.guest(guest.name)
        other = None if guest.name in self._own else _read(path)
        if other and self._lasts(other.by):
            return  # one of this name is being made: one of the two will be refused
        promise = {"by": self._by, "host": host, "guest": guest.to_answer(), "ha": ha}
        private.write(str(path), json.dumps(promise))
        self._own.add(guest.name)

    def withdraw(self, name: str) -> None:
        """It does not come after all."""
        if name in self._own:
            self._own.discard(name)
            (self._folder / name).unlink(missing_ok=True)

    def end(self) -> None:
        """All of it is where it was promised."""
        for name in self._own:
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._folder / name)
        (self._folder / f"{_OF}{self._by}").unlink(missing_ok=True)
        if self._handle is not None:
            os.close(self._handle)


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


def _read(path: Path) -> _Promise | None:
    """What the file says; None of one that is damaged or gone."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        guest = facts.Guest.from_answer({**told["guest"], "name": path.name}, str(path))
        by = str(told["by"])
        return _Promise(by, str(told["host"]), guest, told["ha"]) if by.isalnum() else None
    except (OSError, ValueError, TypeError, LookupError, errors.BadAnswer):
        return None
