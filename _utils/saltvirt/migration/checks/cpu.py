"""The guest's CPU against the target's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saltvirt.migration.facts import GuestReport, TargetReport

if TYPE_CHECKING:
    from saltvirt.migration.checks import CheckedMigration


def reasons(guest: GuestReport, host: TargetReport, request: CheckedMigration) -> Iterator[str]:
    if guest.active and host.cpu_error:
        yield f"the guest's CPU cannot run on {host.hostname}: {host.cpu_error}"
