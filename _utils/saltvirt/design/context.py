"""What building a domain needs to know besides what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from saltvirt.design.caps import Caps, CapsGuest
from saltvirt.design.source import Source
from saltvirt.spec.nic import NicSpec

if TYPE_CHECKING:
    from saltvirt.design.caps import DomainCaps

QEMU = ("kvm", "qemu", "hvf")


@dataclass
class GuestInputs:
    """What the caller decided for this guest.

    uuid: the UUID, or None to let libvirt make one.
    mac: a function of a NicSpec that returns the MAC for it, or None to let libvirt choose.
    sources: disk name -> :class:`saltvirt.design.source.Source`, where each disk's data is.
    disk_targets: of an update: disk name -> target of the disk that is meant, see
    ``identity.find_disks``; None: by what the definition alone says. leaving: targets of the
    disks that the update takes off the guest; None: all that it does not speak of, but for block
    devices, which go only when it speaks of none.
    nic_names: {MAC: name} of interfaces whose name is known otherwise than by the record.
    removed: of an update: ``disks:TARGET`` or ``nics:MAC`` -> the settings that it takes away.
    node_devices: name -> the XML text of libvirt's node device, for host devices by name.
    """

    uuid: str | None = None
    mac: Callable[[NicSpec], str | None] | None = None
    sources: dict[str, Source] = field(default_factory=dict)
    disk_targets: dict[str, str] | None = None
    leaving: Collection[str] | None = None
    nic_names: dict[str, str] = field(default_factory=dict)
    removed: dict[str, set[str]] = field(default_factory=dict)
    node_devices: dict[str, str] = field(default_factory=dict)


@dataclass
class Context:
    """The host's side of one domain: which hypervisor, and what it can do."""

    caps: Caps
    guest: CapsGuest
    virt_type: str
    inputs: GuestInputs
    warnings: list[str] = field(default_factory=list)

    @property
    def qemu(self) -> bool:
        """True for QEMU with or without an accelerator."""
        return self.virt_type in QEMU

    @property
    def xen(self) -> bool:
        """True for Xen."""
        return self.virt_type == "xen"

    @property
    def container(self) -> bool:
        """True where there is no machine, only processes."""
        return self.guest.os_type == "exe"

    @property
    def domain(self) -> DomainCaps | None:
        """The domain capabilities when they are for this kind of guest, else None."""
        domain_caps = self.caps.domain
        fits = domain_caps and (domain_caps.virt_type, domain_caps.arch) == (
            self.virt_type,
            self.guest.arch,
        )
        return domain_caps if fits else None

    def allows(self, device: str, name: str, value: str, unknown: bool = True) -> bool:
        """Whether the host allows a device's value; ``unknown`` where libvirt does not tell."""
        if self.domain is None:
            return unknown
        answer = self.domain.allows(device, name, value)
        return unknown if answer is None else answer

    def has(self, device: str, unknown: bool = True) -> bool:
        """Whether the hypervisor has a kind of device; ``unknown`` where libvirt is silent."""
        if self.domain is None:
            return unknown
        answer = self.domain.has(device)
        return unknown if answer is None else answer
