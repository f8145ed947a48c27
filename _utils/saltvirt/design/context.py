"""Everything that building a domain needs, in addition to the user's arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from saltvirt.design.caps import Caps, CapsGuest
from saltvirt.design.source import Source
from saltvirt.spec.nic import NicSpec

if TYPE_CHECKING:
    from saltvirt.design.caps import DomainCaps
    from saltvirt.design.operating_system import GuestOs

QEMU = ("kvm", "qemu", "hvf")


@dataclass
class GuestInputs:
    """The caller's decisions for a guest.

    uuid: the UUID, or None: libvirt generates one. mac: a function that returns the MAC for a
    NicSpec, or None: libvirt generates it. sources: disk name ->
    :class:`saltvirt.design.source.Source`, the location of each disk's data. disk_targets: for an
    update: disk name -> target of the existing disk, see ``identity.find_disks``; None: from the
    definition only. busy_targets: targets that new disks do not get, because the running guest has
    not released their disks. leaving: targets of the disks that the update detaches; None: all
    disks that it does not list, except block devices, which are only detached if it lists no disk.
    nic_names: {MAC: name} of interfaces whose name is not from the record. removed: for an update:
    ``disks:TARGET`` or ``nics:MAC`` -> the settings to remove. node_devices: name -> XML text of
    libvirt's node device, for host devices by name. os: the requested operating system.
    """

    uuid: str | None = None
    mac: Callable[[NicSpec], str | None] | None = None
    sources: dict[str, Source] = field(default_factory=dict)
    disk_targets: dict[str, str] | None = None
    busy_targets: Collection[str] = ()
    leaving: Collection[str] | None = None
    nic_names: dict[str, str] = field(default_factory=dict)
    removed: dict[str, set[str]] = field(default_factory=dict)
    node_devices: dict[str, str] = field(default_factory=dict)
    os: GuestOs | None = None


@dataclass
class Context:
    """The host's part of a domain: its hypervisor with its capabilities."""

    caps: Caps
    guest: CapsGuest
    virt_type: str
    inputs: GuestInputs
    warnings: list[str] = field(default_factory=list)

    @property
    def qemu(self) -> bool:
        """True for QEMU, with or without an accelerator."""
        return self.virt_type in QEMU

    @property
    def xen(self) -> bool:
        """True for Xen."""
        return self.virt_type == "xen"

    @property
    def container(self) -> bool:
        """True for a container, which has no machine."""
        return self.guest.os_type == "exe"

    @property
    def domain(self) -> DomainCaps | None:
        """The domain capabilities if they are for this kind of guest, otherwise None."""
        domain_caps = self.caps.domain
        fits = domain_caps and (domain_caps.virt_type, domain_caps.arch) == (
            self.virt_type,
            self.guest.arch,
        )
        return domain_caps if fits else None

    def allows(self, device: str, name: str, value: str, unknown: bool = True) -> bool:
        """Whether the host supports a device's value; ``unknown`` if libvirt does not report it."""
        if self.domain is None:
            return unknown
        answer = self.domain.allows(device, name, value)
        return unknown if answer is None else answer

    def has(self, device: str, unknown: bool = True) -> bool:
        """Whether the hypervisor supports a kind of device; ``unknown`` if libvirt does not report
        it."""
        if self.domain is None:
            return unknown
        answer = self.domain.has(device)
        return unknown if answer is None else answer
