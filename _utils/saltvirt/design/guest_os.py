"""What the operating system of a guest needs: Hyper-V enlightenments, clock, buses and models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design import clock
from saltvirt.design.caps import X86
from saltvirt.design.features import RETRIES
from saltvirt.design.operating_system import WINDOWS
from saltvirt.design.put import is_given
from saltvirt.xml.domain.timer import Timer

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.domain.domain import Domain

# enlightenment: those that it needs. reenlightenment is not here: QEMU refuses to migrate a guest
# that uses it unless its TSC has a fixed frequency. evmcs and avic depend on the host's CPU
_ENLIGHTENMENTS = {
    "relaxed": (),
    "vapic": (),
    "spinlocks": (),
    "vpindex": (),
    "runtime": (),
    "synic": ("vpindex",),
    "stimer": ("vpindex", "synic"),
    "frequencies": (),
    "tlbflush": ("vpindex",),
    "ipi": ("vpindex",),
}
# if libvirt does not report any: known to all supported versions, and independent of the kernel
_ALWAYS = ("relaxed", "vapic", "spinlocks")


def apply(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Apply the requested operating system to a domain, unless it is already recorded there.
    Settings of the spec, and enlightenments that were turned off, take precedence."""
    guest_os = context.inputs.os
    if guest_os is None or domain.record.os == guest_os.name:
        return
    if guest_os.id or domain.record.os:  # a family leaves the identifier of another program
        domain.osinfo_id = guest_os.id
    domain.record.os = guest_os.name
    if guest_os.secure:
        _advise(spec, domain, context)
    if guest_os.family == WINDOWS:
        _clock(spec, domain, context)
        if context.qemu and context.guest.arch in X86:
            _enlighten(spec, domain, context)
            _one_socket(spec, domain)


def _clock(spec: GuestSpec, domain: Domain, context: Context) -> None:
    requested = spec.clock
    times = (requested.utc, requested.adjustment, requested.timezone) if requested else ()
    if domain.clock.offset in (None, "utc") and all(value is None for value in times):
        domain.clock.offset = "localtime"
    if requested is not None and requested.timers is not None:
        return
    if clock.has_timers(context):
        clock.add_timers(domain)
        names = {timer.name for timer in domain.clock.timers}
        if context.virt_type != "qemu" and "hypervclock" not in names:
            domain.clock.timers.append(Timer(name="hypervclock", present=True))


def enlightenments(context: Context) -> list[str]:
    """The Hyper-V enlightenments for Windows that the host supports."""
    reported = context.domain.hyperv if context.domain else None
    names = [
        name for name in _ENLIGHTENMENTS if name in (_ALWAYS if reported is None else reported)
    ]
    return [name for name in names if all(word in names for word in _ENLIGHTENMENTS[name])]


def _enlighten(spec: GuestSpec, domain: Domain, context: Context) -> None:
    requested = spec.features or {}
    if domain.features.hyperv_mode not in (None, "custom"):
        return  # those of the host
    for name in enlightenments(context):
        prop = f"hyperv_{name}"
        if prop in requested or getattr(domain.features, prop) is not None:
            continue
        needed = [f"hyperv_{word}" for word in _ENLIGHTENMENTS[name]]
        if all(getattr(domain.features, word) for word in needed):
            setattr(domain.features, prop, True)
    if domain.features.hyperv_spinlocks and not domain.features.hyperv_spinlocks_retries:
        domain.features.hyperv_spinlocks_retries = RETRIES


def _one_socket(spec: GuestSpec, domain: Domain) -> None:
    """Put all CPUs into one socket: Windows for desktops uses at most two. With NUMA, the cells
    decide."""
    cpu = domain.cpu
    if spec.cpu.topology is None and not cpu.sockets and not len(cpu.cells):
        cpu.sockets, cpu.cores, cpu.threads = 1, domain.vcpu.maximum, 1


def _advise(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Warn about what the operating system requires and the guest lacks."""
    missing = []
    if "q35" not in (domain.os.machine or "") and context.guest.arch in X86:
        missing.append("machine: q35")
    if not domain.os.secure and not (spec.boot and is_given(spec.boot.loader)):
        missing.append("boot: {efi: True, secure: True}")
    if not len(domain.tpms):
        missing.append("tpm: True")
    if missing:
        name = context.inputs.os.name if context.inputs.os else ""
        context.warnings.append(
            f"os {name} requires UEFI with secure boot and a TPM 2.0: give {', '.join(missing)}"
        )


def disk_bus(domain: Domain, context: Context) -> str | None:
    """The bus of a hard disk for the guest's operating system; None: the best of the host.

    A further disk gets the bus of the first one, for which the system has a driver.
    """
    if not context.qemu or not domain.record.os:
        return None
    first = next((disk for disk in domain.disks if disk.device == "disk"), None)
    if first is not None:
        return first.bus
    guest_os = context.inputs.os
    if guest_os is None or guest_os.virtio_disk or context.guest.arch not in X86:
        return None
    order = ("sata", "ide") if guest_os.pcie else ("ide", "sata")
    buses = [name for name in order if context.allows("disk", "bus", name)]
    return buses[0] if buses else None


def nic_model(domain: Domain, context: Context) -> str | None:
    """The model of an interface for the guest's operating system; None: virtio. A further
    interface gets the model of the first one."""
    if not context.qemu or not domain.record.os:
        return None
    first = next((nic for nic in domain.interfaces if nic.model), None)
    if first is not None:
        return first.model
    guest_os = context.inputs.os
    if guest_os is None or guest_os.virtio_nic or context.guest.arch not in X86:
        return None
    is_q35 = "q35" in (domain.os.machine or "")
    return "e1000e" if guest_os.pcie and is_q35 else "e1000"
