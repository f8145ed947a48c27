"""Where is a guest? One question to all hosts, names and states only. And where was it last seen?
What could show by that alone that two hosts have it is asked of all, see docs/runner.md."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors
from saltvirt.answers.guests import Leftovers
from saltvirt.fleet.client import Fleet
from saltvirt.operations.journal import location_cache
from saltvirt.placement import facts

BELOW_SYNDIC = "this master has syndics: hosts below one that does not answer are not known here"


class NamesOnDisk:
    """What libvirt's files tell of the names on hosts that did not answer: where libvirt alone is
    silent, they do. The hosts are asked once, when somebody first wants to know."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts = hosts
        self._names: dict[str, frozenset[str]] | None = None
        self._lock = threading.Lock()

    def names(self, fleet: Fleet) -> dict[str, frozenset[str]]:
        """Host to the names of its guests, of those of the hosts whose files could be read."""
        with self._lock:
            if self._names is None:
                answers = fleet.ask(sorted(self._hosts), "virt.names_on_disk")
                self._names = {
                    answer.host: frozenset(answer.data)
                    for answer in answers
                    if answer.ok and isinstance(answer.data, list)
                }
            return self._names


LastSeen = Callable[[str], "tuple[str, str] | None"]


def last_seen_lookup(opts: dict[str, Any], unreachable: Iterable[str]) -> LastSeen:
    """What Locations.last_seen is."""
    return lambda name: location_cache.last_seen(opts, name, unreachable)


@dataclass(frozen=True)
class Locations:
    """guests: name to {host: state}. unreachable: host to why it did not answer. unknown: why there
    may be hosts that are not known, or None. files: of the unreachable. last_seen: of the name of a
    guest: which of the unreachable had it when it was last heard, and when that was."""

    guests: dict[str, dict[str, str]] = field(default_factory=dict)
    unreachable: dict[str, str] = field(default_factory=dict)
    unknown: str | None = None
    names_on_disk: NamesOnDisk = field(default_factory=NamesOnDisk, compare=False, repr=False)
    last_seen: LastSeen = field(default=lambda _name: None, compare=False, repr=False)

    def host_of(self, name: str) -> str:
        """The one host that has the guest.

        Raises NotFound, naming the hosts that could not be asked, or the one that had it when it
        was last heard; and OperationFailed when two hosts have it: which one is meant is never
        guessed.
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
            host, last_heard = last
            reason = self.unreachable[host]
            raise errors.NotFound(
                f"{name} was last seen on {host}, which does not respond (since {last_heard}): "
                f"{reason}"
            )
        text = f"no guest {name!r} on any hypervisor"
        if self.unreachable:
            text += f" that answered ({self.unreachable_text()})"
        text += f" ({self.unknown})" if self.unknown else ""
        raise errors.NotFound(text)

    def unreachable_text(self) -> str:
        return "; ".join(f"{host}: {reason}" for host, reason in sorted(self.unreachable.items()))


def locations(fleet: Fleet, hosts: list[str] | None = None) -> Locations:
    """Asks every host which guests it has. Returns a Locations."""
    states: dict[str, dict[str, str]] = {}
    unreachable: dict[str, str] = {}
    for answer in fleet.ask(hosts or fleet.hosts(), "virt.vm_state"):
        if answer.error is not None:
            unreachable[answer.host] = answer.error
        else:
            states[answer.host] = answer.data or {}
            location_cache.store_host(fleet.opts, answer.host, states[answer.host])
    unknown = BELOW_SYNDIC if fleet.opts.get("order_masters") else None
    return Locations(
        by_name(states),
        unreachable,
        unknown,
        NamesOnDisk(unreachable),
        last_seen_lookup(fleet.opts, unreachable),
    )


def leftovers(fleet: Fleet, host: str, **options: Any) -> Leftovers:
    """What interrupted operations have left on the host. options: as Fleet.one takes them. Raises
    as that does."""
    return Leftovers.from_answer(fleet.call(host, "virt.leftovers", **options), host)


def by_name(states: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Guest to {host: state}, of host to {guest: state}."""
    guests: dict[str, dict[str, str]] = {}
    for host, host_states in states.items():
        for name, state in host_states.items():
            guests.setdefault(name, {})[host] = state
    return guests


def locate(fleet: Fleet, name: str) -> tuple[str, str]:
    """(host, state) of the guest. Raises as Locations.host_of does."""
    guest_locations = locations(fleet)
    host = guest_locations.host_of(name)
    location_cache.store(fleet.opts, name, host)
    return host, guest_locations.guests[name][host]


def cached_host(fleet: Fleet, name: str) -> str | None:
    """The host where the guest was last seen, when it is a hypervisor of this master with a
    connection. What is below a syndic is found by asking all."""
    host = None if fleet.opts.get("order_masters") else location_cache.load(fleet.opts, name)
    return host if host in fleet.hosts() and fleet.connected([host]) else None


def last_seen(fleet: Fleet, name: str) -> tuple[str, str] | None:
    """(host, state) of a guest that is active where it was last seen, by that host's own word.

    None when that is not so, or not known: then all are asked. One that is off there may
    run on another.
    """
    host = cached_host(fleet, name)
    if host is None:
        return None
    answer = fleet.gather([host], "virt.vm_state", {"vm_": name})[host]
    state = (answer.data or {}).get(name)
    return (host, state) if state in facts.ACTIVE else None


def info(fleet: Fleet, name: str) -> tuple[str, dict[str, Any]]:
    """(host, what its ``virt.vm_info`` tells of the guest). Of one that is active where it was last
    seen no other host is asked. Raises as Locations.host_of does, and as Fleet.one."""
    host = cached_host(fleet, name)
    if host:
        answer = fleet.gather([host], "virt.vm_info", {"vm_": name})[host]
        guest = (answer.data or {}).get(name, {})
        if guest.get("state") in facts.ACTIVE:
            return host, answer.data
    host, _ = locate(fleet, name)
    response: dict[str, Any] = fleet.call(host, "virt.vm_info", {"vm_": name}, long=False)
    return host, response
