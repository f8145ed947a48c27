"""The guest's network interfaces."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from saltvirt.design import guest_os, identity, match
from saltvirt.design.put import put, replace
from saltvirt.errors import InvalidInput
from saltvirt.spec.base import REMOVE, value_or_none
from saltvirt.spec.profiles import BRIDGE
from saltvirt.spec.switch import PARAMETERS
from saltvirt.xml.devices.interface import Interface
from saltvirt.xml.network.vlan import Tag

if TYPE_CHECKING:
    from collections.abc import Collection

    from saltvirt.design.context import Context
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.spec.nic import BandwidthSpec, NicSpec
    from saltvirt.spec.switch import VirtualPortSpec, VlanSpec
    from saltvirt.xml.domain.domain import Domain
    from saltvirt.xml.network.network import Network
    from saltvirt.xml.network.portgroup import PortGroup

_SOURCE_FIELDS = {"network": "network", "bridge": "bridge", "direct": "dev"}


def model(spec: NicSpec, domain: Domain, context: Context) -> str | None:
    """The interface's model: as requested, otherwise the operating system's or the hypervisor's
    best; None: the hypervisor chooses."""
    preferred = spec.model or guest_os.nic_model(domain, context)
    if preferred:
        return preferred
    if context.qemu or context.virt_type in ("test", "bhyve"):
        return "virtio"
    return "e1000" if context.virt_type == "vmware" else None


def build(
    spec: NicSpec, domain: Domain, context: Context, used_macs: Collection[str | None] = ()
) -> Interface:
    """Build an Interface for a NicSpec; by default, it is connected to the default bridge.
    used_macs: the MACs of the guest."""
    mac = spec.mac or _mac(spec, context, used_macs)
    if not spec.type:
        spec = dataclasses.replace(spec, **BRIDGE)
    nic = Interface(type=spec.type)
    nic.mac = mac
    nic.model = None if spec.type == "hostdev" else model(spec, domain, context)
    edit(nic, spec)
    return nic


def _mac(spec: NicSpec, context: Context, used_macs: Collection[str | None]) -> str | None:
    """A MAC that the guest does not have yet; None: libvirt chooses it."""
    if not context.inputs.mac:
        return None
    offers = (context.inputs.mac(spec) for _ in range(len(used_macs) + 1))
    return next((mac for mac in offers if mac not in used_macs), None)


def edit(nic: Interface, spec: NicSpec) -> None:
    """Apply a NicSpec to an Interface; type and source are set together."""
    if spec.type and (nic.type, nic.source) != (spec.type, spec.source):
        source = nic.need().find("source")
        if spec.type != nic.type:
            if source is not None:
                nic.need().remove(source)
            # these settings belong to the previous switch
            nic.vlan = nic.virtualport = nic.portgroup = None
        if nic.type == "hostdev" != spec.type:
            nic.need().attrib.pop("managed", None)  # for a device that is passed through
            nic.driver_name = None
        nic.type = spec.type
        nic.network = nic.bridge = nic.dev = nic.mode = None
        if spec.type in _SOURCE_FIELDS:
            setattr(nic, _SOURCE_FIELDS[spec.type], spec.source)
        elif spec.type == "hostdev" and spec.source:
            nic.device_managed, nic.model = True, None
            nic.device_address.set_pci_name(spec.source)
    if spec.type == "direct":
        nic.mode = spec.mode or nic.mode or "bridge"
    put(nic, spec)
    _check_queues(nic, spec)
    if spec.link is not None:
        nic.link_state = None if spec.link is REMOVE else "up" if spec.link else "down"
    for name, lay in (("vlan", vlan), ("virtualport", virtualport), ("bandwidth", bandwidth)):
        value = getattr(spec, name)
        if value is REMOVE:
            setattr(nic, name, None)
        elif value:
            lay(nic, value)


def _check_queues(nic: Interface, spec: NicSpec) -> None:
    """Raise InvalidInput for queues with a model that has none; leave them out, as libvirt does, if
    the operating system has chosen the model."""
    if value_or_none(spec.queues) and nic.model and not nic.model.startswith("virtio"):
        if spec.model:
            raise InvalidInput(f"interface {spec.name or nic.mac}: queues is for model virtio")
        nic.queues = None


def amend(spec: GuestSpec, domain: Domain, context: Context) -> list[tuple[NicSpec, Interface]]:
    """Apply a GuestSpec's interfaces to an existing domain, and remove others. Returns each NicSpec
    with its Interface. Raises InvalidInput if it is ambiguous which one would be removed."""
    names = {**context.inputs.nic_names, **identity.nic_names(domain)}
    pairs, unmatched = match.nics(spec.nics or (), domain.interfaces, names)
    for obsolete in unmatched:
        domain.interfaces.remove(obsolete)
    result = []
    for nic_spec, existing in pairs:
        if existing is not None:
            edit(existing, nic_spec)
        used_macs = {(nic.mac or "").lower() for nic in domain.interfaces}
        result.append(
            (
                nic_spec,
                existing or domain.interfaces.append(build(nic_spec, domain, context, used_macs)),
            )
        )
    return result


def bandwidth(owner: Interface | Network | PortGroup, spec: BandwidthSpec) -> None:
    """Apply a BandwidthSpec to an interface or a network."""
    for direction in ("inbound", "outbound"):
        limit = getattr(spec, direction)
        if limit is REMOVE:
            for prop in _limits(direction):
                setattr(owner.bandwidth, prop, None)
        elif limit:
            put(owner.bandwidth, limit, **_limits(direction))


def _limits(direction: str) -> dict[str, str]:
    names = ("average", "peak", "burst") + (("floor",) if direction == "inbound" else ())
    return {f"{direction}_{name}": name for name in names}


def vlan(owner: Interface | Network | PortGroup, spec: VlanSpec) -> None:
    """Apply a VlanSpec to an interface or a network."""
    tags = [Tag(id=tag.id, native_mode=tag.native_mode) for tag in spec.tags or ()]
    owner.vlan.trunk = spec.trunk or (True if len(tags) > 1 else None)
    replace(owner.vlan, "tags", tags)


def virtualport(owner: Interface | Network | PortGroup, spec: VirtualPortSpec) -> None:
    """Apply a VirtualPortSpec to an interface or a network."""
    owner.virtualport.type = spec.type
    parameters = dict.fromkeys(PARAMETERS) if spec.parameters is REMOVE else spec.parameters
    for name, value in (parameters or {}).items():
        setattr(owner.virtualport, name, value_or_none(value))
