"""Name, UUID and MAC addresses are free on the target, and the target is another host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saltvirt.migration.facts import GuestReport, TargetReport
from saltvirt.placement import facts

if TYPE_CHECKING:
    from saltvirt.migration.checks.request import CheckedMigration


def reasons(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> Iterator[str]:
    if host.host_uuid and host.host_uuid == guest.host_uuid:
        yield f"{host.hostname} is where the guest already is"
        return
    for domain in (report.guest for report in host.domains):
        if domain.name == guest.name:
            yield (
                f"a guest named {guest.name} is already on {host.hostname} "
                f"({domain.state}, UUID {domain.uuid})"
            )
        elif domain.uuid == guest.uuid:
            yield f"{domain.name} on {host.hostname} has the guest's UUID {guest.uuid}"
    yield from _macs(guest, host)
    yield from _cid(guest, host)


def _macs(guest: GuestReport, host: TargetReport) -> Iterator[str]:
    used_macs = {
        mac: domain.guest.name
        for domain in host.domains
        for mac in domain.macs
        if domain.guest.uuid != guest.uuid
    }
    for nic in guest.nics:
        if nic.mac in used_macs:
            yield f"{used_macs[nic.mac]} on {host.hostname} has the MAC address {nic.mac}"


def _cid(guest: GuestReport, host: TargetReport) -> Iterator[str]:
    """Check that no running guest of the target has the CID: libvirt rejects the second one."""
    for domain in host.domains if guest.active else ():
        runs = domain.guest.state in facts.ACTIVE
        if runs and guest.cid in domain.cids and domain.guest.uuid != guest.uuid:
            yield (
                f"{domain.guest.name} on {host.hostname} has the vsock CID {guest.cid}, which the "
                "guest has, too: stop the guest, and give its vsock <cid auto='yes'/>"
            )
