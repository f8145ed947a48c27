"""The guest's CPU runs on the target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saltvirt.migration.facts import GuestReport, HostCpu, TargetReport

if TYPE_CHECKING:
    from saltvirt.migration.checks.request import CheckedMigration


def reasons(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> Iterator[str]:
    if guest.active and host.cpu_error:
        yield f"the guest's CPU cannot run on {host.hostname}: {host.cpu_error}"
    if guest.active and guest.host_cpu and host.cpu and not request.options.other_cpu:
        mismatch = describe_mismatch(guest.host_cpu, host.cpu)
        if mismatch:
            yield (
                f"the guest has the CPU of {guest.host} itself (host-passthrough), and "
                f"{host.hostname} has {mismatch}: its programs could crash; give it the mode "
                "host-model, stop it, or give other_cpu=True"
            )


def describe_mismatch(source: HostCpu, target: HostCpu) -> str | None:
    """Return what a guest with exactly the source's CPU would not find on the target, or None.
    libvirt reports such a CPU as compatible with any host."""
    if (source.vendor, source.model) != (target.vendor, target.model):
        return f"{_description(target)}, not {_description(source)}"
    missing = sorted(source.features - target.features)
    return f"a CPU without {', '.join(missing)}" if missing else None


def _description(cpu: HostCpu) -> str:
    return " ".join(filter(None, (cpu.vendor, cpu.model))) or "an unknown CPU"
