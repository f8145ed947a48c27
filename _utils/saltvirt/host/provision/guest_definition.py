"""Guest definitions: those of libvirt, and new ones for the capabilities of this host."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from saltvirt.design import domain
from saltvirt.design.caps import parse
from saltvirt.design.context import GuestInputs
from saltvirt.host.capabilities import capabilities_xml
from saltvirt.host.connection import libvirt
from saltvirt.xml.domain.domain import Domain

if TYPE_CHECKING:
    from saltvirt.design.caps import Caps, CapsGuest
    from saltvirt.design.operating_system import GuestOs
    from saltvirt.host.provision.disk_build import DiskBuild
    from saltvirt.spec.guest_spec import GuestSpec


def stored(dom: libvirt.virDomain) -> Domain:
    """Return the guest's definition for its next start, with passwords."""
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    return Domain.fromstring(dom.XMLDesc(flags))


def caps_for(conn: libvirt.virConnect, spec: GuestSpec) -> Caps:
    """Return the host's Caps with the domain capabilities for a GuestSpec.

    ``kvm`` means any QEMU guest in Salt: without KVM, the spec's hypervisor is replaced by the best
    one of the host.
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
    """Return the host's Caps with the domain capabilities for an existing guest."""
    host_caps = parse(capabilities_xml.read(conn))
    guest, virt_type = host_caps.choose(definition.os.arch, definition.os.type, definition.type)
    return _with_domain(conn, host_caps, guest, virt_type, definition.os.machine)


def _with_domain(
    conn: libvirt.virConnect, caps: Caps, guest: CapsGuest, virt_type: str, machine: str | None
) -> Caps:
    # not supported by the test driver and others
    with contextlib.suppress(libvirt.libvirtError):
        emulator = guest.emulator(virt_type)
        text = conn.getDomainCapabilities(emulator, guest.arch, machine, virt_type, 0)
        return caps.with_domain(text)
    return caps


def virt_type(caps: Caps, spec: GuestSpec) -> str:
    """Return the hypervisor that runs the guest: kvm, qemu, xen, test, …."""
    return caps.choose(spec.arch, spec.os_type, spec.hypervisor)[1]


def host_context(
    conn: libvirt.virConnect,
    spec: GuestSpec,
    builds: Iterable[DiskBuild],
    guest_os: GuestOs | None = None,
) -> GuestInputs:
    """Return the context for design from this host: locations of disks, host devices, and the
    operating system."""
    names = [device.name for device in spec.host_devices or () if device.name]
    return GuestInputs(
        sources={build.spec.name: build.source for build in builds if build.source},
        node_devices={name: conn.nodeDeviceLookupByName(name).XMLDesc() for name in names},
        os=guest_os,
    )


def build(
    conn: libvirt.virConnect,
    spec: GuestSpec,
    builds: Iterable[DiskBuild],
    caps: Caps | None = None,
    warnings: list[str] | None = None,
    guest_os: GuestOs | None = None,
) -> Domain:
    """Return the Domain of a new guest with these disks."""
    context = host_context(conn, spec, builds, guest_os)
    return domain.build(spec, caps or caps_for(conn, spec), context, warnings)
