"""The state of each virtual CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.put import put
from saltvirt.spec.base import REMOVE, value_or_none
from saltvirt.xml.domain.vcpu import VcpuState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saltvirt.spec.cpu import CpuSpec, VcpuSpec
    from saltvirt.xml.domain.domain import Domain


def apply(spec: CpuSpec, domain: Domain) -> None:
    """Complete ``<vcpus>``: libvirt treats CPUs that are not listed as disabled.

    CPUs that are not given are enabled, in their order, until the requested number is online.
    """
    if spec.vcpus is REMOVE:
        domain.vcpus = []
        return
    if spec.vcpus is None and not len(domain.vcpus):
        return
    vcpu_specs = {
        number: state for number, state in (spec.vcpus or {}).items() if value_or_none(state)
    }
    vcpu_states = {state.id: state for state in domain.vcpus}
    maximum = domain.vcpu.maximum or 0
    enabled = _enabled(vcpu_specs, vcpu_states, maximum, domain.vcpu.current or maximum)
    states = []
    for number in range(maximum):
        state = vcpu_states.get(number) or VcpuState(id=number, hotpluggable=number > 0)
        state.enabled = number in enabled
        if not state.enabled:
            state.hotpluggable = True  # libvirt only supports offline CPUs that are hotpluggable
        if number in vcpu_specs:
            put(state, vcpu_specs[number])
        if not state.enabled:
            state.plug_order = None
        states.append(state)
    _number([state for state in states if state.enabled])
    domain.vcpus = states
    domain.vcpu.current = len(enabled)


def _number(states: list[VcpuState]) -> None:
    """Set the plug order: libvirt requires it for all CPUs or for none."""
    used_orders = {state.plug_order for state in states if state.plug_order}
    free = (
        number
        for number in range(1, len(states) + len(used_orders) + 1)
        if number not in used_orders
    )
    for state in states if used_orders else ():
        state.plug_order = state.plug_order or next(free)


def _enabled(
    vcpu_specs: Mapping[int, VcpuSpec],
    vcpu_states: Mapping[int | None, VcpuState],
    maximum: int,
    count: int,
) -> set[int]:
    """The online CPUs: those requested, then those that are online now, then the first others."""
    requested = {number: value_or_none(state.enabled) for number, state in vcpu_specs.items()}
    enabled = {number for number in range(maximum) if requested.get(number)}
    running = [
        number for number, state in vcpu_states.items() if number is not None and state.enabled
    ]
    for number in [*sorted(running), *range(maximum)]:
        if len(enabled) < count and number < maximum and requested.get(number) is not False:
            enabled.add(number)
    return enabled
