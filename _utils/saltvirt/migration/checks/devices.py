"""The guest has no devices that are tied to the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saltvirt.migration.facts import GuestReport

if TYPE_CHECKING:
    from saltvirt.migration.checks.request import CheckedMigration


def reasons(guest: GuestReport, request: CheckedMigration) -> Iterator[str]:
    if guest.active:
        for device in guest.hostdevs:
            yield f"host device {device} is part of the guest: detach it first"
    for tag in guest.filesystems:
        yield f"the folder {tag} of the host is mounted in the guest: detach it first"
    if guest.tpm and not guest.active:
        yield "the guest has a TPM, whose state libvirt moves only while it runs: start it first"
