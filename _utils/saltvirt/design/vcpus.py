"""The state of each virtual CPU, where it was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.put import put
from saltvirt.spec.base import REMOVE, given
from saltvirt.xml.vcpu import VcpuState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saltvirt.spec.cpu import CpuSpec, VcpuSpec
    from saltvirt.xml.domain import Domain


def apply(spec: CpuSpec, domain: Domain) -> None:
    """Completes ``<vcpus>``: libvirt takes every CPU that is not listed for disabled.

    The CPUs of which nothing was said are enabled, in their order, until as many run as
    were asked for.
    """
    if spec.vcpus is REMOVE:
        domain.vcpus = []
        return
    if spec.vcpus is None and not len(domain.vcpus):
        return
    wanted = {number: state for number, state in (spec.vcpus or {}).items() if given(state)}
    there = {state.id: state for state in domain.vcpus}
    maximum = domain.vcpu.maximum or 0
    enabled = _enabled(wanted, there, maximum, domain.vcpu.current or maximum)
    states = []
    for number in range(maximum):
        state = there.get(number) or VcpuState(id=number, hotpluggable=number > 0)
        state.enabled = number in enabled
        if not state.enabled:
            state.hotpluggable = True  # libvirt has no other that is off
        if number in wanted:
            put(state, wanted[number], "hotpluggable", plug_order="order")
        if not state.enabled:
            state.plug_order = None
        states.append(state)
    _number([state for state in states if state.enabled])
    domain.vcpus = states
    domain.vcpu.current = len(enabled)


def _number(states: list[VcpuState]) -> None:
    """libvirt wants the order of plugging for all of them or for none."""
    taken = {state.plug_order for state in states if state.plug_order}
    free = (number for number in range(1, len(states) + len(taken) + 1) if number not in taken)
    for state in states if taken else ():
        state.plug_order = state.plug_order or next(free)


def _enabled(
    wanted: Mapping[int, VcpuSpec], there: Mapping[int | None, VcpuState], maximum: int, count: int
) -> set[int]:
    """Which CPUs run: those told to, then those that do now, then the first others."""
    asked = {number: given(state.enabled) for number, state in wanted.items()}
    found = {number for number in range(maximum) if asked.get(number)}
    running = [number for number, state in there.items() if number is not None and state.enabled]
    for number in [*sorted(running), *range(maximum)]:
        if len(found) < count and number < maximum and asked.get(number) is not False:
            found.add(number)
    return found
