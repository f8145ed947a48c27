"""The target has the bridges and networks of the guest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saltvirt.migration.facts import GuestReport, TargetReport

if TYPE_CHECKING:
    from saltvirt.migration.checks.request import CheckedMigration


def reasons(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> Iterator[str]:
    checked_plugs = set()
    for nic in guest.nics:
        plug = (nic.type, nic.source)
        if plug not in checked_plugs:
            checked_plugs.add(plug)
            yield from _plug(*plug, host)


def _plug(kind: str | None, source: str | None, host: TargetReport) -> Iterator[str]:
    if kind == "bridge" and host.bridges is not None and source not in host.bridges:
        yield f"{host.hostname} has no bridge {source}"
    if kind == "network":
        if source not in host.networks:
            yield f"{host.hostname} has no network {source}"
        elif not host.networks[source]:
            yield f"the network {source} on {host.hostname} is not started"
    if kind == "direct" and host.links is not None and source not in host.links:
        yield f"{host.hostname} has no network interface {source}"
