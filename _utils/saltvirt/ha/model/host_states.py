"""The last state that a host has reported of itself, as far as the leader may believe it.

A host's own heartbeat proves its sender; what other hosts report of a silent host does not. So the
report of another host can take away a proof, but only equal reports of a majority can establish
one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha.model import messages, safety
from saltvirt.ha.model.messages import SHUT_DOWN, WORKING, HostState
from saltvirt.ha.model.policy import Terms

if TYPE_CHECKING:
    from saltvirt.ha.model.view import MasterState, View


def believed_state(name: str, state: MasterState, view: View) -> HostState:
    """Return the state (pledge) of a host: the last one that the host reported to this master. For
    a silent host, also consider what the host reported to others since then, in the boot that the
    registry has."""
    own_state = state.saved.host_states.get(name, HostState())
    registry = state.saved.registry
    if not registry.is_suspect(name):
        return own_state
    boot = registry.host(name).boot
    reports = {
        peer: report
        for peer, arrived in view.beats.items()
        if peer != name
        and (report := arrived.beat.host_states.get(name)) is not None
        and report.boot == boot
        and messages.order(report) > messages.order(own_state)
    }
    if not reports:
        return own_state
    if safety.may_believe(reports, registry.members):
        return weakest([*reports.values()])
    return weakest([*reports.values(), own_state if own_state.boot == boot else HostState(boot)])


def weakest(states: list[HostState]) -> HostState:
    """Return the state that proves the least of all the states."""
    first = states[0]
    alike = all(state.terms == first.terms for state in states)
    return replace(
        first,
        armed=all(state.armed for state in states),
        watchdog_s=max(state.watchdog_s for state in states),
        phase=SHUT_DOWN if all(state.phase == SHUT_DOWN for state in states) else WORKING,
        freeze=any(state.freeze for state in states),
        terms=first.terms if alike else Terms(),
    )
