"""The conditions for a migration. Every check reports all its reasons; none stops the others.

``guest``: the source's report of the guest; ``host``: the target's report of itself; ``request``:
the caller's request. A fact that is None is unknown, and no reason.
"""

from __future__ import annotations

from saltvirt.migration.checks import (
    capacity,
    cpu,
    devices,
    guest,
    identity,
    machine,
    network,
    storage,
    trust,
)
from saltvirt.migration.checks.request import CheckedMigration
from saltvirt.migration.facts import GuestReport, TargetReport

# the most basic checks first: the reasons are shown in this order
GUEST_CHECKS = (guest.reasons, devices.reasons)
TARGET_CHECKS = (
    trust.reasons,
    identity.reasons,
    machine.reasons,
    capacity.reasons,
    cpu.reasons,
    network.reasons,
    storage.reasons,
)


def guest_reasons(report: GuestReport, request: CheckedMigration) -> list[str]:
    """Return why this guest cannot move anywhere, as sentences; empty if it can."""
    return [reason for check in GUEST_CHECKS for reason in check(report, request)]


def target_reasons(report: GuestReport, host: TargetReport, request: CheckedMigration) -> list[str]:
    """Return why this guest cannot move to that host, as sentences."""
    return [reason for check in TARGET_CHECKS for reason in check(report, host, request)]
