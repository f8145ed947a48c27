"""Guests that somebody on this master keeps as they are wanted: what moves, starts or stops them
otherwise would be undone, or would run them twice.

A file a guest, with what to do instead. Nobody who keeps none has such a folder. Who keeps them is
a Keeper, which the adapters hand to the operations that make and place guests; without one nothing
is asked for, and nothing costs more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from saltvirt import errors, names
from saltvirt.fleet import private
from saltvirt.fleet.client import Fleet
from saltvirt.operations import held
from saltvirt.operations.operation import Operation
from saltvirt.placement import choose, facts

_LONGEST = 1000


class Room(Protocol):
    """What is kept free for the loss of hosts, while one guest after the other is placed. warns:
    what breaks it is only said."""

    warns: bool

    def refusal(self, host: str, guest: facts.Guest, wish: Any = None) -> str:
        """What the guest on the host would break, or nothing. wish: as Keeper.wish returns it."""

    def take(self, host: str, guest: facts.Guest, wish: Any = None) -> None:
        """The guest has got the host."""


class Keeper(Protocol):
    """Who keeps guests on this master. A wish is what a person wants of a guest, as ``wish`` made
    it of what was said; it is nobody else's to look into."""

    @property
    def keeps_room(self) -> bool:
        """Whether ``room`` is any."""

    def wish(self, given: Any, start: bool | None = None) -> Any:
        """The wish in what was said: None for none, False for a guest that is no longer to be kept.
        start: whether the guest will be started. Raises InvalidInput, NotFound."""

    def refuse_name(self, name: str) -> None:
        """Raises AlreadyExists for a name of a guest that is kept, also of one left alone."""

    def others(self, name: str, wish: Any, hosts: Sequence[facts.Host]) -> dict[str, choose.Reason]:
        """Host to why it is none for a guest that is to be kept. Raises OperationFailed where it
        cannot be given on this master now."""

    def ties(
        self, fleet: Fleet, name: str, host: facts.Host, arguments: dict[str, Any]
    ) -> list[str]:
        """Why the guest that ``virt.init`` would make on the host by the arguments could run there
        alone: asks the host."""

    def keeping(
        self, fleet: Fleet, name: str, wish: Any, on: str | None = None
    ) -> Operation | None:
        """What makes it so; None where it is so. on: the host that it was made on right now, by who
        holds its lock."""

    def look_again(self) -> None:
        """What hosts say of themselves has changed: he is to ask them now."""

    def brings(self, host: str) -> str:
        """Why guests that are kept may still come to a host that is in maintenance; or nothing."""

    def rests(self) -> str:
        """Why guests that are kept are left where they are, whatever their host is for; or
        nothing."""

    def forget(self, fleet: Fleet, name: str) -> None:
        """The guest is not kept after all: what made it failed."""

    def room(self, hosts: Sequence[facts.Host]) -> Room | None:
        """The Room by what hosts say of themselves; None where none is kept."""


def _folder(opts: held.Opts) -> Path:
    return Path(opts["cachedir"]) / "virt" / "keepers"


def refuse(opts: held.Opts, name: str) -> None:
    """Raises OperationFailed, with what to do instead, for a guest that is kept."""
    words = who(opts, name)
    if words:
        raise errors.OperationFailed(f"{name} is kept by {words}")


def who(opts: held.Opts, name: str) -> str:
    """Who keeps a guest, and what to do instead; nothing for one that nobody keeps."""
    try:
        names.guest(name)
    except errors.InvalidInput:  # whatever a host calls one of its own
        return ""
    return _read(_folder(opts) / name)


def words(opts: held.Opts) -> dict[str, str]:
    """Guest to who keeps it, and what to do instead, of all that are kept."""
    found = {path.name: _read(path) for path in _folder(opts).glob("[!.]*")}
    return {name: words for name, words in found.items() if words}


def _read(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST)
    except (FileNotFoundError, NotADirectoryError):
        return ""


def keep(opts: held.Opts, told: Mapping[str, str]) -> None:
    """These are kept, and no others. told: guest to who keeps it, and what to do instead."""
    folder = _folder(opts)
    there = {path.name for path in folder.glob("[!.]*")}
    for name, text in told.items():
        path = folder / names.guest(name)
        if name not in there or path.read_text(encoding="utf-8", errors="replace") != text:
            private.write(str(path), text)
    for name in there - set(told):
        (folder / name).unlink(missing_ok=True)


def wish(keeper: Keeper | None, given: Any, start: bool | None = None) -> Any:
    """As Keeper.wish. Raises InvalidInput where there is no Keeper and one is asked for."""
    if keeper:
        return keeper.wish(given, start)
    if given is None or given is False:
        return None
    raise errors.InvalidInput(
        "ha: high availability is not configured: virt:ha:members of the master's configuration "
        "names the hypervisors that take part"
    )
