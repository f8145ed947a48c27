"""Change the memory and the CPUs of an existing domain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.design import cpu
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import placement_facts
from saltvirt.host.provision import admission, guest_definition
from saltvirt.placement import facts
from saltvirt.placement import resources as resources_module

if TYPE_CHECKING:
    from saltvirt.host.provision.admission import AdmissionConfig

_TOPOLOGY = ("sockets", "dies", "clusters", "cores", "threads")


def _grows(
    dom: libvirt.virDomain, admission_config: AdmissionConfig, vcpus: int = 0, memory_kib: int = 0
) -> None:
    """Raise NoRoom if this host lacks the capacity for what the guest's definition gains.

    A value up to its current maximum was promised to the guest when it was created.
    """
    guest = placement_facts.read(dom.name(), placement_facts.definitions(dom, False))
    growth = {
        "vcpu": vcpus > guest.vcpus,
        "memory": memory_kib > resources_module.promised_kib(guest),
    }
    resources = [name for name, grows in growth.items() if grows]
    if resources:
        host = admission.host_facts(dom.connect(), admission_config)
        request = facts.of_guest(guest, host)
        demand = replace(
            request, vcpus=max(vcpus, guest.vcpus), stopped=False,
            memory_kib=max(memory_kib, guest.memory_kib),
        )  # fmt: skip
        admission.check(
            dom.connect(), admission_config, demand, is_new=False, filter_names=resources
        )


def _apply(
    dom: libvirt.virDomain,
    change: Callable[[int, int], object],
    value: int,
    *,
    maximum: int,
    maximum_flag: int,
    config: bool,
) -> None:
    """Set the live and the stored value, according to the domain's state and ``config``."""
    if dom.isActive():
        fits = value <= maximum
        if not fits and not config:
            raise errors.Unsupported(
                f"{dom.name()} was started with a maximum of {maximum}, less than {value}: "
                "stop it first, or pass config=True to apply the change at its next start"
            )
        if fits:
            change(value, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        if not config:
            return
    stored = libvirt.VIR_DOMAIN_AFFECT_CONFIG
    change(value, stored | maximum_flag)
    change(value, stored)


def set_memory(
    dom: libvirt.virDomain, admission_config: AdmissionConfig, memory_kib: int, config: bool = False
) -> bool:
    """Set the domain's memory in KiB.

    A stopped domain gets it as maximum and current amount. A running domain gets it through its
    balloon, up to its maximum; with ``config`` also (or, above the maximum, only) from its next
    start on. admission_config: admission.AdmissionConfig. Raises NoRoom.
    """
    if config or not dom.isActive():
        _grows(dom, admission_config, memory_kib=memory_kib)
    with connection.translated(f"set the memory of {dom.name()}"):
        flag = libvirt.VIR_DOMAIN_MEM_MAXIMUM
        maximum = dom.info()[1]
        _apply(
            dom, dom.setMemoryFlags, memory_kib, maximum=maximum, maximum_flag=flag, config=config
        )
    return True


def set_vcpus(
    dom: libvirt.virDomain, admission_config: AdmissionConfig, vcpus: int, config: bool = False
) -> bool:
    """Set the domain's number of vCPUs; see :func:`set_memory` for when it applies."""
    if config or not dom.isActive():
        _grows(dom, admission_config, vcpus=vcpus)
    with connection.translated(f"set the vCPUs of {dom.name()}"):
        flag = libvirt.VIR_DOMAIN_VCPU_MAXIMUM
        maximum = dom.maxVcpus() if dom.isActive() else vcpus

        def change(count: int, flags: int) -> None:
            if flags & flag:
                _set_maximum(dom, count, flags)
            else:
                dom.setVcpusFlags(count, flags)

        _apply(dom, change, vcpus, maximum=maximum, maximum_flag=flag, config=config)
    return True


def _set_maximum(dom: libvirt.virDomain, vcpus: int, flags: int) -> None:
    """Set the maximum of vCPUs in the definition, and adapt its topology: libvirt refuses a maximum
    that does not match it."""
    definition = guest_definition.stored(dom)
    if not definition.cpu.sockets or definition.vcpu.maximum == vcpus:
        dom.setVcpusFlags(vcpus, flags)
        return
    former, fitted = definition.tostring(), definition.copy()
    fitted.vcpu.maximum = vcpus
    cpu.fit_topology(fitted)
    for name in _TOPOLOGY:
        setattr(definition.cpu, name, None)
    conn = dom.connect()
    conn.defineXML(definition.tostring())
    try:
        dom.setVcpusFlags(vcpus, flags)
        changed = guest_definition.stored(dom)
        for name in _TOPOLOGY:
            setattr(changed.cpu, name, getattr(fitted.cpu, name))
        conn.defineXML(changed.tostring())
    except libvirt.libvirtError:
        conn.defineXML(former)
        raise
