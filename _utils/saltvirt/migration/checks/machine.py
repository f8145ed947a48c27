"""The target's libvirt and QEMU can run the guest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saltvirt import units
from saltvirt.migration.facts import GuestReport, TargetReport

if TYPE_CHECKING:
    from saltvirt.migration.checks.request import CheckedMigration


def reasons(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> Iterator[str]:
    if guest.hypervisor != host.hypervisor:
        yield (f"{host.hostname} runs {host.hypervisor}, the guest's host {guest.hypervisor}")
        return
    yield from _versions(guest, host)
    yield from _machine_type(guest, host)
    yield from _emulator(guest, host)
    yield from _vcpus(guest, host)
    yield from _secrets(host)


def _emulator(guest: GuestReport, host: TargetReport) -> Iterator[str]:
    """Check the emulator of a running guest; a stopped guest gets the target's own."""
    if guest.active and host.machine.has_emulator is False:
        yield (
            f"the guest's emulator is {guest.emulator}, which {host.hostname} does not have: stop "
            f"the guest; a stopped guest gets {host.machine.emulator}"
        )


def _versions(guest: GuestReport, host: TargetReport) -> Iterator[str]:
    if guest.active and _series(host.qemu) < _series(guest.qemu):
        yield (
            f"QEMU {units.version_text(host.qemu)} on {host.hostname} is older than "
            f"{units.version_text(guest.qemu)} on the source: a running guest moves only to the "
            "same or a newer one; stop it to move it cold"
        )


def _series(version: int) -> int:
    """Return the parts of libvirt's version number that make QEMU incompatible: major and minor."""
    return version // 1000


def _machine_type(guest: GuestReport, host: TargetReport) -> Iterator[str]:
    machine_type = f"{guest.arch} {guest.virt_type} {guest.machine}"
    if host.machine.error:
        yield f"{host.hostname} cannot run a {machine_type} machine: {host.machine.error}"


def _vcpus(guest: GuestReport, host: TargetReport) -> Iterator[str]:
    if host.machine.max_vcpus and guest.vcpus > host.machine.max_vcpus:
        yield (
            f"{host.hostname} gives a guest at most "
            f"{units.pluralize(host.machine.max_vcpus, 'CPU')}, {guest.vcpus} are needed"
        )


def _secrets(host: TargetReport) -> Iterator[str]:
    for secret in host.missing_secrets:
        usage = f" ({secret.usage})" if secret.usage else ""
        yield (
            f"{secret.device} needs libvirt's secret {secret.uuid}{usage}, which {host.hostname} "
            f"does not have: virsh secret-dumpxml {secret.uuid} on the guest's host, on "
            f"{host.hostname} virsh secret-define of that file and virsh secret-set-value "
            f"{secret.uuid} --file VALUE"
        )
