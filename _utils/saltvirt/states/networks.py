"""States of networks, with their differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltvirt.states.outcome import StateOutcome, by_path

if TYPE_CHECKING:
    from saltvirt.diff.network_changes import NetworkChange
    from saltvirt.spec.network import NetworkSpec
    from saltvirt.states.result import Answer, StateHost


def defined(host: StateHost, name: str, **options: Any) -> Answer:
    """See ``virt.network_defined``."""
    return host.converged(name, "network_converge", name, **options)


def running(host: StateHost, name: str, **options: Any) -> Answer:
    """See ``virt.network_running``."""
    return host.converged(name, "network_converge", name, running=True, **options)


def absent(host: StateHost, name: str, force: bool) -> Answer:
    """See ``virt.network_absent``."""
    return host.converged(name, "network_remove", name, force)


@dataclass(frozen=True)
class DesiredNetwork:
    """The desired network: its NetworkSpec, and whether it is active now and after boot.

    running: None: unchanged. restart: even if guests use it.
    """

    spec: NetworkSpec
    running: bool | None
    autostart: bool
    restart: bool = False


@dataclass(frozen=True)
class NetworkFacts:
    """The actual network, and its differences.

    redefined: the changes of its definition. live: changes that an active network accepts
    immediately. waiting: changes that take effect at its next start. users: running guests that use
    it, for a restart.
    """

    active: bool
    persistent: bool
    autostart: bool
    redefined: list[NetworkChange]
    live: list[NetworkChange]
    waiting: list[NetworkChange]
    users: list[str]


def created(desired: DesiredNetwork) -> StateOutcome:
    """The StateOutcome if the network does not exist."""
    outcome = StateOutcome(f"network {desired.spec.name}")
    outcome.switch("defined", False, True, "defined")
    outcome.switch("autostart", False, desired.autostart, "marked for autostart")
    outcome.switch("active", False, bool(desired.running), "started")
    return outcome


def restarts(desired: DesiredNetwork, facts: NetworkFacts) -> bool:
    """Whether it is restarted for changes that libvirt cannot make while it is active."""
    return bool(facts.waiting and desired.running and (desired.restart or not facts.users))


def changed(desired: DesiredNetwork, facts: NetworkFacts) -> StateOutcome:
    """The StateOutcome of an existing network."""
    outcome = StateOutcome(f"network {desired.spec.name}")
    needs_restart = restarts(desired, facts)
    live_changes = [*facts.live, *facts.waiting] if needs_restart else facts.live
    outcome.changes = {**by_path(live_changes), **by_path(facts.redefined)}
    if outcome.changes:
        outcome.actions.append("updated")
    outcome.switch("persistent", facts.persistent, True, "defined")
    word = "marked for autostart" if desired.autostart else "no longer started with the host"
    outcome.switch("autostart", facts.autostart, desired.autostart, word)
    if desired.running:
        outcome.switch("active", facts.active, True, "started")
    if needs_restart:
        outcome.actions.append("restarted")
        if facts.users:
            outcome.notes.append(_unplugged(facts))
    elif facts.waiting:
        outcome.notes.append(_pending_note(desired, facts))
    return outcome


def _unplugged(facts: NetworkFacts) -> str:
    return (
        f"libvirt lists no ports of {', '.join(facts.users)} on it until they are stopped and "
        "started: a minimum of bandwidth (floor) and port isolation do not hold for them until then"
    )


def _pending_note(desired: DesiredNetwork, facts: NetworkFacts) -> str:
    text = "The changes take effect when the network is restarted"
    if facts.users:
        text += f": {', '.join(facts.users)} uses it"
    return text + (" (restart: True restarts it now)" if desired.running else "")
