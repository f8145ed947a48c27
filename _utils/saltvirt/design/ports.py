"""Ports for devices that are attached while the guest runs, on machines with PCI Express."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.errors import Unsupported
from saltvirt.xml.devices.controller import Controller

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.domain.domain import Domain

MODEL = "pcie-root-port"
# a port takes one device: what every guest has (USB, SCSI, serial, balloon, random numbers,
# display), and what may come later. libvirt itself leaves one free
RESERVED, SPARE = 6, 8


def apply(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Apply a GuestSpec's pcie_ports to a domain, as a minimum. Ports are never removed, because a
    device may use them."""
    if spec.pcie_ports is None:
        return
    if not _has_ports(domain, context):
        raise Unsupported(f"pcie_ports: machine {domain.os.machine} has no PCI Express")
    _add(domain, spec.pcie_ports)


def default(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Add the default ports of a new guest."""
    if spec.pcie_ports is None and _has_ports(domain, context):
        devices = (*domain.interfaces, *domain.host_devices)
        disks = sum(disk.bus == "virtio" for disk in domain.disks)
        _add(domain, RESERVED + len(devices) + disks + SPARE)


def _has_ports(domain: Domain, context: Context) -> bool:
    machine = domain.os.machine or ""
    return context.qemu and machine.startswith(("q35", "pc-q35", "virt"))


def _add(domain: Domain, count: int) -> None:
    port_count = sum(item.model == MODEL for item in domain.controllers)
    if port_count < count and not any(item.model == "pcie-root" for item in domain.controllers):
        domain.controllers.append(Controller(type="pci", index=0, model="pcie-root"))
    for _ in range(count - port_count):
        domain.controllers.append(Controller(type="pci", model=MODEL))
