"""A guest's definition for one host: the request, the host's capabilities, and good defaults."""

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
    graphics,
    hostdevs,
    identity,
    memory,
    nics,
    numatune,
    ports,
)
from saltvirt.design.context import Context, Given
from saltvirt.design.put import is_given
from saltvirt.design.source import own_places, owns, places
from saltvirt.errors import Unsupported
from saltvirt.xml.domain import Domain
from saltvirt.xml.metadata import Entry, OwnDisk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saltvirt.design.caps import Caps
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.spec.guest import GuestSpec
    from saltvirt.xml.metadata import GuestRecord

RECORD_VERSION = "1"
# finds kernel and initrd on a paravirtual guest's own disk
PYGRUB = "pygrub"
NO_KVM = (
    "this host has no KVM (/dev/kvm): the guest is emulated by QEMU, which is many times slower"
)


def context(spec: GuestSpec, caps: Caps, given: Given | None = None) -> Context:
    """The Context for a new guest: which hypervisor of the host runs it.

    Raises Unsupported when the host has none that fits.
    """
    guest, virt_type = caps.choose(spec.arch, spec.os_type, spec.hypervisor)
    found = Context(caps, guest, virt_type, given or Given())
    if virt_type == "qemu" and spec.hypervisor is None and guest.arch == caps.host.arch:
        found.warnings.append(NO_KVM)
    return found


def build(
    spec: GuestSpec, caps: Caps, given: Given | None = None, warnings: list[str] | None = None
) -> Domain:
    """The Domain of a new guest.

    spec: saltvirt.spec.guest.GuestSpec. caps: saltvirt.design.caps.Caps.
    given: what the caller decided, :class:`saltvirt.design.context.Given`.
    warnings: a list to which sentences for the user are added.

    Raises InvalidInput or Unsupported.
    """
    found = context(spec, caps, given)
    if warnings is not None:
        warnings.extend(found.warnings)
    domain = Domain(type=found.virt_type, name=spec.name, uuid=found.given.uuid)
    _machine(spec, domain, found)
    _settings(spec, domain, found)
    _defaults(spec, domain, found)
    _new_devices(spec, domain, found)
    ports.apply(spec, domain, found)
    ports.default(spec, domain, found)
    return domain


def amend(
    spec: GuestSpec,
    actual: Domain,
    caps: Caps,
    given: Given | None = None,
    warnings: list[str] | None = None,
) -> Domain:
    """The Domain that an existing guest shall become: a copy with what was asked for.

    spec: of ``guest.parse(..., update=True)``. actual: the guest's persistent definition,
    read with its passwords (VIR_DOMAIN_XML_INACTIVE | VIR_DOMAIN_XML_SECURE).
    What the spec does not speak of stays, known to us or not.
    warnings: a list to which sentences for the user are added.

    Raises InvalidInput or Unsupported.
    """
    domain = actual.copy()
    found = existing(domain, caps, given)
    found.warnings = warnings if warnings is not None else []
    _settings(spec, domain, found)
    if spec.guest_agent is not None:
        chardevs.agent(domain, found, spec.guest_agent)
    if spec.disks is not None and found.container:
        container.check(spec, domain, found)
    elif spec.disks is not None:
        _amend_disks(spec, actual, domain, found)
    if spec.nics is not None:
        _amend_nics(spec, domain, found)
    ports.apply(spec, domain, found)
    if boot.ordered(spec):
        domain.os.boots = []  # libvirt takes one way of saying it, not both
        boot.give_way(domain, actual)
    return domain


def existing(domain: Domain, caps: Caps, given: Given | None = None) -> Context:
    """The Context of a guest that is there: its hypervisor is not chosen any more."""
    os_type = "xen" if domain.os.type == "linux" else domain.os.type  # an old word for it
    guest, virt_type = caps.choose(domain.os.arch, os_type, domain.type)
    return Context(caps, guest, virt_type, given or Given())


def _amend_disks(spec: GuestSpec, actual: Domain, domain: Domain, found: Context) -> None:
    """Lays the disks on; our record has them, and no more those that go. Of a guest of somebody
    else's it is begun when a disk is made for it."""
    if domain.record:
        identity.upgrade(domain)
    known = identity.disk_names(domain)
    pairs = disks.amend(spec, domain, found)
    for wanted, disk, _source in pairs:
        found.given.removed[f"disks:{disk.target}"] = wanted.removed()
    _forget(actual, domain)
    for own in domain.record.disks:  # one that was away may be back on another target
        at = next((disk for disk in domain.disks if places(disk) & own_places(own)), None)
        own.target = at.target if at else own.target
    _record(spec, domain, found)
    if domain.record:
        _forget_renamed(domain, known, found)
        for wanted, disk, source in pairs:
            if not _is_seed(wanted, found):
                identity.name_disk(domain.record, wanted.name, disk, source)
        identity.forget_disks(domain)


def _forget_renamed(domain: Domain, known: Mapping[str, str], found: Context) -> None:
    """Takes the names that disks had until now out of the record, where they are given another.
    known: {target: name}."""
    for name, target in (found.given.disk_targets or {}).items():
        old = known.get(target)
        named = identity.entry(domain.record, old) if old and old != name else None
        if named is not None and old not in (found.given.disk_targets or {}):
            domain.record.devices.disks.remove(named)


def _amend_nics(spec: GuestSpec, domain: Domain, found: Context) -> None:
    pairs = nics.amend(spec, domain, found)
    for wanted, nic in pairs:
        found.given.removed[f"nics:{nic.mac}"] = wanted.removed()
    if domain.record:
        for wanted, nic in pairs:
            if wanted.name and nic.mac:
                identity.name_nic(domain.record, wanted.name, nic.mac)
        identity.forget_nics(domain)


def _is_seed(disk: DiskSpec, found: Context) -> bool:
    """Whether it is the drive with the volume that we make for cloud-init: no user names that."""
    source = found.given.sources.get(disk.name)
    return disk.removable and source is not None and source.made


def _forget(actual: Domain, domain: Domain) -> None:
    """Takes disks that this update takes off the guest, or gives other data, out of our record:
    their data stays where it is. One whose place libvirt has changed, as for a snapshot, stays."""
    before = {disk.target: places(disk) for disk in actual.disks}
    now = [places(disk) for disk in domain.disks]
    for own in domain.record.disks:
        was = before.get(own.target, set())
        if was and not any(was & its for its in now):
            domain.record.disks.remove(own)


def _record(spec: GuestSpec, domain: Domain, found: Context) -> None:
    """Writes down which disks we made."""
    for disk in spec.disks or ():
        source = found.given.sources.get(disk.name)
        if source is None or not source.made:
            continue
        for there in domain.disks:
            known = any(owns(own, there) for own in domain.record.disks)
            if places(there) & source.places() and not known:
                own = OwnDisk(target=there.target, path=source.path)
                own.pool, own.volume = source.pool, source.volume
                domain.record.disks.append(own)


def _machine(spec: GuestSpec, domain: Domain, found: Context) -> None:
    """OS type, architecture and the machine by its canonical name, which does not change
    when QEMU is updated, so that the guest keeps its hardware and can migrate."""
    domain.os.type, domain.os.arch = found.guest.os_type, found.guest.arch
    domain.emulator = found.guest.emulator(found.virt_type)
    if spec.machine:
        domain.os.machine = found.guest.machine(spec.machine)
        if not domain.os.machine:
            raise Unsupported(f"machine {spec.machine!r}: this host's {found.virt_type} has none")
    elif found.domain and found.domain.machine:
        domain.os.machine = found.domain.machine
    elif found.xen and found.guest.os_type == "hvm":
        domain.os.machine = found.guest.machine("xenfv")
    if found.xen and found.guest.os_type == "hvm" and found.guest.loader:
        domain.os.loader, domain.os.loader_type = found.guest.loader, "rom"
    if found.xen and found.guest.os_type == "xen" and not is_given(spec.boot and spec.boot.kernel):
        domain.bootloader = PYGRUB


def _settings(spec: GuestSpec, domain: Domain, found: Context) -> None:
    """Everything that is no list of devices; for new and existing guests alike."""
    for name in ("title", "description", "on_poweroff", "on_reboot", "on_crash"):
        if getattr(spec, name) is not None:
            setattr(domain, name, getattr(spec, name))
    memory.apply(spec.memory, domain, found)
    cpu.apply(spec.cpu, domain, found)
    cputune.apply(spec.cpu, domain, found)
    numatune.apply(spec.numatune, domain, found)
    boot.apply(spec, domain, found)
    features.apply(spec.features, domain, found)
    clock.apply(spec.clock, domain, found)
    graphics.apply(spec.graphics, domain, found)
    chardevs.apply(spec, domain, found)
    devices.apply(spec, domain, found)
    hostdevs.apply(spec, domain, found)
    memory.agree(spec, domain)
    for key, value in (spec.metadata or {}).items():
        _entry(domain.record, key, value)


def _entry(record: GuestRecord, key: str, value: str) -> None:
    for entry in record.entries:
        if entry.key == key:
            entry.value = value
            return
    record.entries.append(Entry(key=key, value=value))


def _defaults(spec: GuestSpec, domain: Domain, found: Context) -> None:
    """What a new guest gets where its user said nothing."""
    domain.on_poweroff = domain.on_poweroff or "destroy"
    domain.on_reboot = domain.on_reboot or "restart"
    domain.on_crash = domain.on_crash or "destroy"
    boot.default(spec, domain, found)
    cpu.default(domain, found)
    clock.default(domain, found)
    features.default(domain, found, spec.features)
    chardevs.default(domain, found)
    chardevs.agent(domain, found, spec.guest_agent)
    devices.default(domain, found, spec)
    graphics.inputs(domain, found)
    domain.record.version = RECORD_VERSION


def _new_devices(spec: GuestSpec, domain: Domain, found: Context) -> None:
    if found.container:
        container.apply(spec, domain, found)
    else:
        _new_disks(spec, domain, found)
    for nic in spec.nics or ():
        domain.interfaces.append(nics.build(nic, found))


def _new_disks(spec: GuestSpec, domain: Domain, found: Context) -> None:
    taken = disks.named(spec.disks or ())
    identity.begin(domain.record)
    for disk in spec.disks or ():
        built = domain.disks.append(disks.build(disk, domain, found, taken))
        if not _is_seed(disk, found):
            identity.name_disk(domain.record, disk.name, built, disks.source_of(disk, found))
    _record(spec, domain, found)
    disks.controllers(domain, found)
