"""Where is a guest? One question to all hosts, names and states only."""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt import errors
from saltvirt.fleet.client import Fleet

BELOW = "this master has syndics: hosts below one that does not answer are not known here"


@dataclass(frozen=True)
class Locations:
    """guests: name to {host: state}. unreachable: host to why it did not answer. unknown: why there
    may be hosts that are not known, or None."""

    guests: dict[str, dict[str, str]] = field(default_factory=dict)
    unreachable: dict[str, str] = field(default_factory=dict)
    unknown: str | None = None

    def host_of(self, name: str) -> str:
        """The one host that has the guest.

        Raises NotFound, naming the hosts that could not be asked, and OperationFailed when
        two hosts have it: which one is meant is never guessed.
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
        text = f"no guest {name!r} on any hypervisor"
        if self.unreachable:
            text += f" that answered ({self.unreachable_text()})"
        text += f" ({self.unknown})" if self.unknown else ""
        raise errors.NotFound(text)

    def unreachable_text(self) -> str:
        return "; ".join(f"{host}: {why}" for host, why in sorted(self.unreachable.items()))


def locations(fleet: Fleet, hosts: list[str] | None = None) -> Locations:
    """Asks every host which guests it has. Returns a Locations."""
    guests: dict[str, dict[str, str]] = {}
    unreachable: dict[str, str] = {}
    for answer in fleet.ask(hosts or fleet.hosts(), "virt.vm_state"):
        if answer.error is not None:
            unreachable[answer.host] = answer.error
            continue
        for name, state in (answer.data or {}).items():
            guests.setdefault(name, {})[answer.host] = state
    return Locations(guests, unreachable, BELOW if fleet.opts.get("order_masters") else None)


def locate(fleet: Fleet, name: str) -> tuple[str, str]:
    """(host, state) of the guest. Raises as Locations.host_of does."""
    found = locations(fleet)
    host = found.host_of(name)
    return host, found.guests[name][host]
