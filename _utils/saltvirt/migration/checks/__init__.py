"""What must hold before a guest moves. Every check gives its reasons; none stops the others.

``guest``: what the source reports of the guest; ``host``: what the target reports of
itself; ``request``: what the caller wants. A fact that is None could not be found out: it is no
reason.
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

# the cheapest and most basic first: the reasons are shown in this order
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
    """Why this guest cannot move anywhere: a list of sentences, empty when it can."""
    return [reason for check in GUEST_CHECKS for reason in check(report, request)]


def target_reasons(report: GuestReport, host: TargetReport, request: CheckedMigration) -> list[str]:
    """Why this guest cannot move to that host: a list of sentences."""
    return [reason for check in TARGET_CHECKS for reason in check(report, host, request)]
