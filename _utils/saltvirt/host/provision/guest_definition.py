"""A guest's definition, made for this host by what its libvirt says it can do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from saltvirt.design import domain
from saltvirt.design.caps import parse
from saltvirt.design.context import GuestInputs
from saltvirt.host.capabilities import capabilities_xml
from saltvirt.host.connection import libvirt

if TYPE_CHECKING:
    from saltvirt.design.caps import Caps, CapsGuest
    from saltvirt.host.provision.disk_build import DiskBuild
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.domain.domain import Domain


def caps_for(conn: libvirt.virConnect, spec: GuestSpec) -> Caps:
    """The host's Caps, with the domain capabilities for the guest that the spec asks for.

    Salt's users write ``kvm`` for whatever QEMU runs: on a host without KVM the spec's
    hypervisor becomes the best that the host has.
    """
    host_caps = parse(capabilities_xml.read(conn))
    if (
        spec.hypervisor == "kvm"
        and "kvm" not in host_caps.virt_types
        and "qemu" in host_caps.virt_types
    ):
        spec.hypervisor = None
    guest, virt_type = host_caps.choose(spec.arch, spec.os_type, spec.hypervisor)
    machine = guest.machine(spec.machine) if spec.machine else None
    return _with_domain(conn, host_caps, guest, virt_type, machine)


def caps_of(conn: libvirt.virConnect, definition: Domain) -> Caps:
    """The host's Caps, with the domain capabilities for a guest that is there (xml Domain)."""
    host_caps = parse(capabilities_xml.read(conn))
    guest, virt_type = host_caps.choose(definition.os.arch, definition.os.type, definition.type)
    return _with_domain(conn, host_caps, guest, virt_type, definition.os.machine)


def _with_domain(
    conn: libvirt.virConnect, caps: Caps, guest: CapsGuest, virt_type: str, machine: str | None
) -> Caps:
    # the test driver and others have none
    with contextlib.suppress(libvirt.libvirtError):
        emulator = guest.emulator(virt_type)
        text = conn.getDomainCapabilities(emulator, guest.arch, machine, virt_type, 0)
        return caps.with_domain(text)
    return caps


def virt_type(caps: Caps, spec: GuestSpec) -> str:
    """Which of the host's hypervisors runs the guest: kvm, qemu, xen, test…"""
    return caps.choose(spec.arch, spec.os_type, spec.hypervisor)[1]


def host_context(
    conn: libvirt.virConnect, spec: GuestSpec, builds: Iterable[DiskBuild]
) -> GuestInputs:
    """What design must know of this host: where disks are, what its devices are."""
    names = [device.name for device in spec.host_devices or () if device.name]
    return GuestInputs(
        sources={build.spec.name: build.source for build in builds if build.source},
        node_devices={name: conn.nodeDeviceLookupByName(name).XMLDesc() for name in names},
    )


def build(
    conn: libvirt.virConnect,
    spec: GuestSpec,
    builds: Iterable[DiskBuild],
    caps: Caps | None = None,
    warnings: list[str] | None = None,
) -> Domain:
    """The xml Domain of a new guest whose disks are these Works."""
    return domain.build(
        spec, caps or caps_for(conn, spec), host_context(conn, spec, builds), warnings
    )
