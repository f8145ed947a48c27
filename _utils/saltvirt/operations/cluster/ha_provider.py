"""Guests that a provider such as high availability manages: other operations must not move, start
or stop them, because the provider would revert that, or the guest would run twice.

Each managed guest has a file that names the provider and what to do instead; the folder exists only
if guests are managed. Adapters pass a HaProvider to the operations that create and place guests.
Without a provider, these checks cost nothing.
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
from saltvirt.placement.calls import CreateRequest
from saltvirt.system import file_lock

_MAX_CHARS = 1000


class CapacityReserve(Protocol):
    """The capacity that is reserved for failover, while guests are placed one after the other.
    warns: a broken reserve is only reported."""

    warns: bool

    def refusal(self, host: str, guest: facts.Guest, options: Any = None) -> str:
        """Return what the guest would break on the host, or "". options: as returned by
        HaProvider.parse_options."""

    def take(self, host: str, guest: facts.Guest, options: Any = None) -> None:
        """Count the guest on the host."""


class HaProvider(Protocol):
    """Manages guests on this master. Options are the HA options of a guest, as parsed by
    ``parse_options``; only the provider reads them."""

    @property
    def has_reserve(self) -> bool:
        """Return whether ``capacity_reserve`` returns a reserve."""

    def parse_options(self, value: Any, start: bool | None = None) -> Any:
        """Return the parsed options: None if none are given, False if the guest is no longer to be
        managed. start: whether the guest will be started. Raises InvalidInput, NotFound."""

    def refuse_name(self, name: str) -> None:
        """Raise AlreadyExists if a managed guest has this name, also if it is ignored."""

    def rejected_hosts(
        self, name: str, options: Any, hosts: Sequence[facts.Host]
    ) -> dict[str, choose.Reason]:
        """Return host to why a managed guest cannot be placed there. Raises OperationFailed if
        guests cannot be added on this master now."""

    def local_resources(
        self, fleet: Fleet, name: str, host: facts.Host, request: CreateRequest
    ) -> list[str]:
        """Ask the host why the guest that the request would create could only run there."""

    def plan_change(
        self, fleet: Fleet, name: str, options: Any, created_on: str | None = None
    ) -> Operation | None:
        """Return the operation that applies the options; None if they apply already. created_on:
        the host on which the caller, who holds the guest's lock, has just created it."""

    def refresh(self) -> None:
        """Tell the provider to query the hosts now, because they have changed."""

    def pending_arrivals(self, host: str) -> str:
        """Return why managed guests may still move to a host in maintenance; or ""."""

    def idle_reason(self) -> str:
        """Return why the provider does not move its guests now; or ""."""

    def forget(self, fleet: Fleet, name: str) -> None:
        """Stop managing the guest, because its creation failed."""

    def capacity_reserve(self, hosts: Sequence[facts.Host]) -> CapacityReserve | None:
        """Return the reserve for these inventories; None if none is configured."""

    def capacity(
        self,
        hosts: Sequence[facts.Host],
        request: facts.PlacementRequest,
        max_guests: Mapping[str, int],
    ) -> dict[str, Any] | None:
        """Return how many guests like the request fit without violating the reserve, and what is
        missing now, as plain data; None without a reserve. max_guests: the number that each host
        has capacity for."""


def _folder(opts: file_lock.Opts) -> Path:
    return Path(opts["cachedir"]) / "virt" / "keepers"


def refuse_managed(opts: file_lock.Opts, name: str) -> None:
    """Raise OperationFailed, with what to do instead, if the guest is managed."""
    manager = manager_of(opts, name)
    if manager:
        raise errors.OperationFailed(f"{name} is managed by {manager}")


def manager_of(opts: file_lock.Opts, name: str) -> str:
    """Return who manages a guest and what to do instead; "" if the guest is not managed."""
    try:
        names.guest(name)
    except errors.InvalidInput:  # a host can report any name
        return ""
    return _read(_folder(opts) / name)


def managed_guests(opts: file_lock.Opts) -> dict[str, str]:
    """Return guest to who manages it and what to do instead, for all managed guests."""
    managers = {path.name: _read(path) for path in _folder(opts).glob("[!.]*")}
    return {name: manager for name, manager in managers.items() if manager}


def _read(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_CHARS)
    except (FileNotFoundError, NotADirectoryError):
        return ""


def store_managed(opts: file_lock.Opts, managers: Mapping[str, str]) -> None:
    """Replace the list of managed guests. managers: guest to who manages it and what to do
    instead."""
    folder = _folder(opts)
    stored_names = {path.name for path in folder.glob("[!.]*")}
    for name, text in managers.items():
        path = folder / names.guest(name)
        if name not in stored_names or path.read_text(encoding="utf-8", errors="replace") != text:
            private.write(str(path), text)
    for name in stored_names - set(managers):
        (folder / name).unlink(missing_ok=True)


def parse_ha_options(provider: HaProvider | None, value: Any, start: bool | None = None) -> Any:
    """Return the options as HaProvider.parse_options does. Raises InvalidInput if options are given
    without a provider."""
    if provider:
        return provider.parse_options(value, start)
    if value is None or value is False:
        return None
    raise errors.InvalidInput(
        "ha: high availability is not configured: virt:ha:members of the master's configuration "
        "names the hypervisors that take part"
    )
