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
from saltvirt.operations.core.operation import Operation
from saltvirt.placement import choose, facts
from saltvirt.system import file_lock

_MAX_CHARS = 1000


class CapacityReserve(Protocol):
    """What is kept free for the loss of hosts, while one guest after the other is placed. warns:
    what breaks it is only said."""

    warns: bool

    def refusal(self, host: str, guest: facts.Guest, options: Any = None) -> str:
        """What the guest on the host would break, or nothing. options: as Keeper.wish returns
        it."""

    def take(self, host: str, guest: facts.Guest, options: Any = None) -> None:
        """The guest has got the host."""


class HaProvider(Protocol):
    """Who keeps guests on this master. A wish is what a person wants of a guest, as ``wish`` made
    it of what was said; it is nobody else's to look into."""

    @property
    def has_reserve(self) -> bool:
        """Whether ``room`` is any."""

    def parse_options(self, value: Any, start: bool | None = None) -> Any:
        """The wish in what was said: None for none, False for a guest that is no longer to be kept.
        start: whether the guest will be started. Raises InvalidInput, NotFound."""

    def refuse_name(self, name: str) -> None:
        """Raises AlreadyExists for a name of a guest that is kept, also of one left alone."""

    def rejected_hosts(
        self, name: str, options: Any, hosts: Sequence[facts.Host]
    ) -> dict[str, choose.Reason]:
        """Host to why it is none for a guest that is to be kept. Raises OperationFailed where it
        cannot be given on this master now."""

    def local_resources(
        self, fleet: Fleet, name: str, host: facts.Host, arguments: dict[str, Any]
    ) -> list[str]:
        """Why the guest that ``virt.init`` would make on the host by the arguments could run there
        alone: asks the host."""

    def plan_change(
        self, fleet: Fleet, name: str, options: Any, created_on: str | None = None
    ) -> Operation | None:
        """What makes it so; None where it is so. created_on: the host that it was made on right
        now, by who
        holds its lock."""

    def refresh(self) -> None:
        """What hosts say of themselves has changed: he is to ask them now."""

    def pending_arrivals(self, host: str) -> str:
        """Why guests that are kept may still come to a host that is in maintenance; or nothing."""

    def idle_reason(self) -> str:
        """Why guests that are kept are left where they are, whatever their host is for; or
        nothing."""

    def forget(self, fleet: Fleet, name: str) -> None:
        """The guest is not kept after all: what made it failed."""

    def capacity_reserve(self, hosts: Sequence[facts.Host]) -> CapacityReserve | None:
        """The Room by what hosts say of themselves; None where none is kept."""


def _folder(opts: file_lock.Opts) -> Path:
    return Path(opts["cachedir"]) / "virt" / "keepers"


def refuse_managed(opts: file_lock.Opts, name: str) -> None:
    """Raises OperationFailed, with what to do instead, for a guest that is kept."""
    manager = manager_of(opts, name)
    if manager:
        raise errors.OperationFailed(f"{name} is kept by {manager}")


def manager_of(opts: file_lock.Opts, name: str) -> str:
    """Who keeps a guest, and what to do instead; nothing for one that nobody keeps."""
    try:
        names.guest(name)
    except errors.InvalidInput:  # whatever a host calls one of its own
        return ""
    return _read(_folder(opts) / name)


def managed_guests(opts: file_lock.Opts) -> dict[str, str]:
    """Guest to who keeps it, and what to do instead, of all that are kept."""
    managers = {path.name: _read(path) for path in _folder(opts).glob("[!.]*")}
    return {name: manager for name, manager in managers.items() if manager}


def _read(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_CHARS)
    except (FileNotFoundError, NotADirectoryError):
        return ""


def store_managed(opts: file_lock.Opts, managers: Mapping[str, str]) -> None:
    """These are kept, and no others. managers: guest to who keeps it, and what to do instead."""
    folder = _folder(opts)
    stored_names = {path.name for path in folder.glob("[!.]*")}
    for name, text in managers.items():
        path = folder / names.guest(name)
        if name not in stored_names or path.read_text(encoding="utf-8", errors="replace") != text:
            private.write(str(path), text)
    for name in stored_names - set(managers):
        (folder / name).unlink(missing_ok=True)


def parse_ha_options(provider: HaProvider | None, value: Any, start: bool | None = None) -> Any:
    """As Keeper.wish. Raises InvalidInput where there is no Keeper and one is asked for."""
    if provider:
        return provider.parse_options(value, start)
    if value is None or value is False:
        return None
    raise errors.InvalidInput(
        "ha: high availability is not configured: virt:ha:members of the master's configuration "
        "names the hypervisors that take part"
    )
