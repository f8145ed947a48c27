"""Build a guest's definition for a host from the user's arguments, the host's capabilities and
defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design import (
    boot,
    chardevs,
    clock,
    container,
    cpu,
    cputune,
    devices,
    disks,
    features,
    filesystems,
    graphics,
    guest_os,
    hostdevs,
    identity,
    input_devices,
    memory,
    nics,
    numatune,
    platform_devices,
    ports,
    sysinfo,
)
from saltvirt.design.context import Context, GuestInputs
from saltvirt.design.put import is_given
from saltvirt.design.source import disk_locations, own_locations, owns
from saltvirt.errors import Unsupported
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.metadata import MetadataEntry, OwnDisk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saltvirt.design.caps import Caps
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.domain.metadata import GuestRecord

RECORD_VERSION = "1"
# loads kernel and initrd from a paravirtual guest's own disk
PYGRUB = "pygrub"
NO_KVM = (
    "this host has no KVM (/dev/kvm): the guest is emulated by QEMU, which is many times slower"
)


def new_context(spec: GuestSpec, caps: Caps, inputs: GuestInputs | None = None) -> Context:
    """The Context of a new guest, with the hypervisor that runs it.

    Raises Unsupported if no hypervisor of the host matches.
    """
    guest, virt_type = caps.choose(spec.arch, spec.os_type, spec.hypervisor)
    context = Context(caps, guest, virt_type, inputs or GuestInputs())
    if virt_type == "qemu" and spec.hypervisor is None and guest.arch == caps.host.arch:
        context.warnings.append(NO_KVM)
    return context


def build(
    spec: GuestSpec,
    caps: Caps,
    inputs: GuestInputs | None = None,
    warnings: list[str] | None = None,
) -> Domain:
    """Build the Domain of a new guest.

    spec: saltvirt.spec.guest.GuestSpec. caps: saltvirt.design.caps.Caps.
    inputs: what the caller decided, :class:`saltvirt.design.context.GuestInputs`.
    warnings: a list to which warnings for the user are appended.

    Raises InvalidInput or Unsupported.
    """
    context = new_context(spec, caps, inputs)
    domain = Domain(type=context.virt_type, name=spec.name, uuid=context.inputs.uuid)
    _machine(spec, domain, context)
    _settings(spec, domain, context)
    _defaults(spec, domain, context)
    _new_devices(spec, domain, context)
    ports.apply(spec, domain, context)
    ports.default(spec, domain, context)
    if warnings is not None:
        warnings.extend(context.warnings)
    return domain


def amend(
    spec: GuestSpec,
    actual: Domain,
    caps: Caps,
    inputs: GuestInputs | None = None,
    warnings: list[str] | None = None,
) -> Domain:
    """Build the Domain of an updated guest: a copy with the requested changes.

    spec: from ``guest.parse(..., update=True)``. actual: the guest's persistent definition, with
    passwords (VIR_DOMAIN_XML_INACTIVE | VIR_DOMAIN_XML_SECURE). Settings that the spec does not
    contain are kept, even if Salt Virt does not know them. warnings: a list to which warnings for
    the user are appended.

    Raises InvalidInput or Unsupported.
    """
    domain = actual.copy()
    context = existing_context(domain, caps, inputs)
    context.warnings = warnings if warnings is not None else []
    _settings(spec, domain, context)
    if spec.guest_agent is not None:
        chardevs.agent(domain, context, spec.guest_agent)
    if spec.disks is not None and context.container:
        container.check(spec, domain, context)
    elif spec.disks is not None:
        _amend_disks(spec, actual, domain, context)
    if spec.nics is not None:
        _amend_nics(spec, domain, context)
    ports.apply(spec, domain, context)
    if boot.ordered(spec):
        domain.os.boots = []  # libvirt accepts only one of the two notations
        boot.give_way(domain, actual)
    return domain


def existing_context(domain: Domain, caps: Caps, inputs: GuestInputs | None = None) -> Context:
    """The Context of an existing guest, with its hypervisor."""
    os_type = "xen" if domain.os.type == "linux" else domain.os.type  # old name of machine
    guest, virt_type = caps.choose(domain.os.arch, os_type, domain.type)
    return Context(caps, guest, virt_type, inputs or GuestInputs())


def _amend_disks(spec: GuestSpec, actual: Domain, domain: Domain, context: Context) -> None:
    """Apply the disks, and update the guest's record accordingly. If another program created the
    guest, the record is created when Salt Virt creates a disk for it."""
    if domain.record:
        identity.upgrade(domain)
    recorded_names = identity.disk_names(domain)
    pairs = disks.amend(spec, domain, context)
    for disk_spec, disk, _source in pairs:
        context.inputs.removed[f"disks:{disk.target}"] = disk_spec.removed_fields()
    _forget(actual, domain)
    # a disk that was detached may be attached as another target
    for own_disk in domain.record.disks:
        locations = own_locations(own_disk)
        for disk in domain.disks:
            if disk_locations(disk) & locations:
                own_disk.target = disk.target
                break
    _record(spec, domain, context)
    if domain.record:
        _forget_renamed(domain, recorded_names, context)
        for disk_spec, disk, source in pairs:
            if not _is_seed(disk_spec, context):
                identity.name_disk(domain.record, disk_spec.name, disk, source)
        identity.forget_disks(domain)


def _forget_renamed(domain: Domain, recorded_names: Mapping[str, str], context: Context) -> None:
    """Remove the previous names of renamed disks from the record. recorded_names: {target:
    name}."""
    targets = context.inputs.disk_targets or {}
    for name, target in targets.items():
        old = recorded_names.get(target)
        named_disk = identity.entry(domain.record, old) if old and old != name else None
        if named_disk is not None and old not in targets:
            domain.record.devices.disks.remove(named_disk)


def _amend_nics(spec: GuestSpec, domain: Domain, context: Context) -> None:
    pairs = nics.amend(spec, domain, context)
    for nic_spec, nic in pairs:
        context.inputs.removed[f"nics:{nic.mac}"] = nic_spec.removed_fields()
    if domain.record:
        for nic_spec, nic in pairs:
            if nic_spec.name and nic.mac:
                identity.name_nic(domain.record, nic_spec.name, nic.mac)
        identity.forget_nics(domain)


def _is_seed(disk: DiskSpec, context: Context) -> bool:
    """Whether a disk is the drive of the cloud-init volume, which has no name of the user."""
    source = context.inputs.sources.get(disk.name)
    return disk.removable and source is not None and source.created


def _forget(actual: Domain, domain: Domain) -> None:
    """Remove disks from the record that this update detaches or gives other data: their data is
    kept. A disk whose location libvirt has changed, as for a snapshot, stays in the record."""
    before = {disk.target: disk_locations(disk) for disk in actual.disks}
    now = [disk_locations(disk) for disk in domain.disks]
    for own_disk in domain.record.disks:
        old_locations = before.get(own_disk.target, set())
        if old_locations and not any(old_locations & new_locations for new_locations in now):
            domain.record.disks.remove(own_disk)


def _record(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Record the disks that were created."""
    for disk in spec.disks or ():
        source = context.inputs.sources.get(disk.name)
        if source is None or not source.created:
            continue
        for domain_disk in domain.disks:
            is_recorded = any(owns(own_disk, domain_disk) for own_disk in domain.record.disks)
            if disk_locations(domain_disk) & source.locations() and not is_recorded:
                own_disk = OwnDisk(target=domain_disk.target, path=source.path)
                own_disk.pool, own_disk.volume = source.pool, source.volume
                domain.record.disks.append(own_disk)


def _machine(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Set OS type, architecture and the canonical name of the machine, which does not change when
    QEMU is updated, so that the guest keeps its hardware and can migrate."""
    domain.os.type, domain.os.arch = context.guest.os_type, context.guest.arch
    domain.emulator = context.guest.emulator(context.virt_type)
    if spec.machine:
        domain.os.machine = context.guest.machine(spec.machine)
        if not domain.os.machine:
            raise Unsupported(f"machine {spec.machine!r}: this host's {context.virt_type} has none")
    elif context.domain and context.domain.machine:
        domain.os.machine = context.domain.machine
    elif context.xen and context.guest.os_type == "hvm":
        domain.os.machine = context.guest.machine("xenfv")
    os_type = context.guest.os_type if context.xen else None
    if os_type == "hvm" and context.guest.loader:
        domain.os.loader, domain.os.loader_type = context.guest.loader, "rom"
    if os_type == "xen" and not is_given(spec.boot and spec.boot.kernel):
        domain.bootloader = PYGRUB


def _settings(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Apply all settings that are not lists of devices, of new and existing guests."""
    for name in ("title", "description", "on_poweroff", "on_reboot", "on_crash"):
        if getattr(spec, name) is not None:
            setattr(domain, name, getattr(spec, name))
    memory.apply(spec.memory, domain, context)
    cpu.apply(spec.cpu, domain, context)
    cputune.apply(spec.cpu, domain, context)
    numatune.apply(spec.numatune, domain, context)
    boot.apply(spec, domain, context)
    sysinfo.apply(spec.sysinfo, domain, context)
    features.apply(spec.features, domain, context)
    clock.apply(spec.clock, domain, context)
    graphics.apply(spec.graphics, domain, context)
    input_devices.apply(spec, domain, context)
    chardevs.apply(spec, domain, context)
    devices.apply(spec, domain, context)
    platform_devices.apply(spec, domain, context)
    hostdevs.apply(spec, domain, context)
    filesystems.apply(spec, domain, context)
    memory.agree(spec, domain)
    guest_os.apply(spec, domain, context)
    for key, value in (spec.metadata or {}).items():
        _entry(domain.record, key, value)


def _entry(record: GuestRecord, key: str, value: str) -> None:
    for entry in record.entries:
        if entry.key == key:
            entry.value = value
            return
    record.entries.append(MetadataEntry(key=key, value=value))


def _defaults(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Set the defaults of a new guest."""
    domain.on_poweroff = domain.on_poweroff or "destroy"
    domain.on_reboot = domain.on_reboot or "restart"
    domain.on_crash = domain.on_crash or "destroy"
    boot.default(spec, domain, context)
    cpu.default(domain, context)
    clock.default(domain, context, spec.clock)
    features.default(domain, context, spec.features)
    if spec.serials is None and spec.consoles is None:
        chardevs.default(domain, context)
    chardevs.agent(domain, context, spec.guest_agent)
    devices.default(domain, context, spec)
    input_devices.default(spec, domain, context)
    domain.record.version = RECORD_VERSION


def _new_devices(spec: GuestSpec, domain: Domain, context: Context) -> None:
    if context.container:
        container.apply(spec, domain, context)
    else:
        _new_disks(spec, domain, context)
    for nic in spec.nics or ():
        domain.interfaces.append(nics.build(nic, domain, context))


def _new_disks(spec: GuestSpec, domain: Domain, context: Context) -> None:
    used_targets = disks.target_names(spec.disks or ())
    identity.begin_names(domain.record)
    for disk in spec.disks or ():
        device = domain.disks.append(disks.build(disk, domain, context, used_targets))
        if not _is_seed(disk, context):
            source = disks.source_of(disk, context)
            identity.name_disk(domain.record, disk.name, device, source)
    _record(spec, domain, context)
    disks.controllers(domain, context)
