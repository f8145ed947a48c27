"""Find the host of a guest.

The hosts are asked for names and states only. If the guest's cached host confirms it, operations
for which a second definition is harmless ask no other host; see docs/how-to/runner.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors
from saltvirt.answers.guest_calls import (
    LIST_LEFTOVERS,
    LIST_STATES,
    NAMES_ON_DISK,
    GuestsRequest,
    HostRequest,
    NamedGuestRequest,
)
from saltvirt.answers.guests import Leftovers
from saltvirt.answers.inspect_calls import GUEST_DETAILS
from saltvirt.answers.inspection import GuestDetails
from saltvirt.fleet.client import Fleet
from saltvirt.operations.journal import location_cache
from saltvirt.placement import facts

BELOW_SYNDIC = "this master has syndics: hosts below a syndic that does not answer are unknown"


class NamesOnDisk:
    """Guest names from libvirt's files on hosts that did not answer: if only libvirt hangs, the
    files are readable. The hosts are asked once, at the first use."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts = hosts
        self._names: dict[str, frozenset[str]] | None = None
        self._lock = threading.Lock()

    def names(self, fleet: Fleet) -> dict[str, frozenset[str]]:
        """Return host to the names of its guests, for each host whose files could be read."""
        with self._lock:
            if self._names is None:
                listed, _ = NAMES_ON_DISK.gather(fleet, sorted(self._hosts), HostRequest())
                self._names = {host: frozenset(names) for host, names in listed.items()}
            return self._names


LastSeen = Callable[[str], "tuple[str, str] | None"]


def last_seen_text(name: str, last: tuple[str, str]) -> str:
    """Return where the guest is that no host reports. last: as returned by LastSeen."""
    host, last_heard = last
    return f"{name} was last seen on {host}, which does not respond (since {last_heard})"


def quoting_hint(name: str) -> str:
    """Return how to type a name of digits, for the error about an unknown guest; else nothing."""
    if not name.isdecimal():
        return ""
    return "; YAML reads 010 as the number 8: quote such a name twice, as in name='\"010\"'"


def last_seen_lookup(opts: dict[str, Any], unreachable: Iterable[str]) -> LastSeen:
    """Return the function for Locations.last_seen."""
    return lambda name: location_cache.last_seen(opts, name, unreachable)


@dataclass(frozen=True)
class Locations:
    """Where guests are. guests: name to {host: state}. unreachable: host to why it did not answer.
    unknown: why unknown hosts may exist, or None. names_on_disk: of the unreachable hosts.
    last_seen: returns which of the unreachable hosts had a guest when it last answered, and when
    that was."""

    guests: dict[str, dict[str, str]] = field(default_factory=dict)
    unreachable: dict[str, str] = field(default_factory=dict)
    unknown: str | None = None
    names_on_disk: NamesOnDisk = field(default_factory=NamesOnDisk, compare=False, repr=False)
    last_seen: LastSeen = field(default=lambda _name: None, compare=False, repr=False)

    def host_of(self, name: str) -> str:
        """Return the one host that has the guest.

        Raises NotFound, with the hosts that did not answer, or the host that had the guest when it
        last answered; OperationFailed if two hosts have the guest, because it is unknown which one
        is meant.
        """
        hosts = self.guests.get(name, {})
        if len(hosts) == 1:
            return next(iter(hosts))
        if hosts:
            places = ", ".join(f"{host} ({state})" for host, state in sorted(hosts.items()))
            raise errors.OperationFailed(
                f"{name!r} is on more than one host: {places}; salt-run virt.repair name={name} "
                "says what to do"
            )
        last = self.last_seen(name)
        if last:
            raise errors.NotFound(f"{last_seen_text(name, last)}: {self.unreachable[last[0]]}")
        text = f"no guest {name!r} on any hypervisor"
        if self.unreachable:
            text += f" that answered ({self.unreachable_text()})"
        text += f" ({self.unknown})" if self.unknown else ""
        raise errors.NotFound(text + quoting_hint(name))

    def unreachable_text(self) -> str:
        return "; ".join(f"{host}: {reason}" for host, reason in sorted(self.unreachable.items()))


def locations(fleet: Fleet, hosts: list[str] | None = None) -> Locations:
    """Ask every host which guests it has."""
    states, unreachable = LIST_STATES.gather(fleet, hosts or fleet.hosts(), GuestsRequest())
    for host, host_states in states.items():
        location_cache.store_host(fleet.opts, host, host_states)
    unknown = BELOW_SYNDIC if fleet.opts.get("order_masters") else None
    return Locations(
        by_name(states),
        unreachable,
        unknown,
        NamesOnDisk(unreachable),
        last_seen_lookup(fleet.opts, unreachable),
    )


def leftovers(fleet: Fleet, host: str, **options: Any) -> Leftovers:
    """Return what interrupted operations have left on the host. options: as for Fleet.call, which
    raises the errors."""
    return LIST_LEFTOVERS.ask(fleet, host, HostRequest(), **options)


def by_name(states: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Convert {host: {guest: state}} to {guest: {host: state}}."""
    guests: dict[str, dict[str, str]] = {}
    for host, host_states in states.items():
        for name, state in host_states.items():
            guests.setdefault(name, {})[host] = state
    return guests


def locate(fleet: Fleet, name: str) -> tuple[str, str]:
    """Return (host, state) of the guest. Raises as Locations.host_of does."""
    guest_locations = locations(fleet)
    host = guest_locations.host_of(name)
    location_cache.store(fleet.opts, name, host)
    return host, guest_locations.guests[name][host]


def cached_host(fleet: Fleet, name: str) -> str | None:
    """Return the host where the guest was last seen, if it is a connected hypervisor of this
    master. Guests below a syndic are found by asking all hosts."""
    host = None if fleet.opts.get("order_masters") else location_cache.load(fleet.opts, name)
    return host if host in fleet.hosts() and fleet.connected([host]) else None


def last_seen(fleet: Fleet, name: str) -> tuple[str, str] | None:
    """Return (host, state) of a guest that is active where it was last seen, as confirmed by that
    host.

    Returns None if this is false or unknown: then all hosts must be asked. A guest that is off
    there may be running on another host.
    """
    host = cached_host(fleet, name)
    if host is None:
        return None
    answer = LIST_STATES.reply(fleet, host, GuestsRequest(name))
    state = answer.get().get(name) if answer.ok else None
    return (host, state) if state in facts.ACTIVE else None


def info(fleet: Fleet, name: str) -> tuple[str, GuestDetails]:
    """Return (host, all that it knows about the guest). If the guest is active where it was last
    seen, no other host is asked. Raises as Locations.host_of and Fleet.call do."""
    host, request = cached_host(fleet, name), NamedGuestRequest(name)
    if host:
        answer = GUEST_DETAILS.reply(fleet, host, request)
        guests = answer.get() if answer.ok else {}
        if name in guests and guests[name].state in facts.ACTIVE:
            return host, guests[name]
    host, _ = locate(fleet, name)
    guests = GUEST_DETAILS.ask(fleet, host, request)
    if name not in guests:
        raise errors.ConnectionFailed(f"{host}: its answer does not include {name}")
    return host, guests[name]
