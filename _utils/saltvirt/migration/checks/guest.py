"""The guest's own state permits a migration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saltvirt import units
from saltvirt.answers.creation import Phase
from saltvirt.migration.facts import GuestReport

if TYPE_CHECKING:
    from saltvirt.migration.checks.request import CheckedMigration

MOVABLE = ("running", "paused", "shutdown")


def reasons(guest: GuestReport, request: CheckedMigration) -> Iterator[str]:
    if guest.state not in MOVABLE:
        yield f"the guest is {guest.state}: it can move when it is {', '.join(MOVABLE)}"
    if guest.phase == Phase.INTERRUPTED.value:
        yield (
            "the creation of the guest was interrupted: "
            f"salt-run virt.repair name={guest.name} shows what to do"
        )
    elif guest.phase != Phase.COMPLETE.value:
        yield "the guest is being created: wait until that has ended"
    if guest.job:
        yield (
            f"libvirt is already working on the guest ({guest.job}): wait for it, "
            "or end it with virt.migrate_abort"
        )
    if not guest.persistent:
        yield (
            "the guest is transient (defined nowhere): define it first, "
            "so that a failure cannot lose it"
        )
    if guest.managed_save:
        yield "the guest has a saved memory image: start it, or remove the image, first"
    if guest.incomplete:
        yield guest.incomplete
    yield from _snapshots(guest)
    yield from _option_conflicts(guest, request)


def _snapshots(guest: GuestReport) -> Iterator[str]:
    if guest.active and guest.snapshots:
        yield (
            f"the guest has {units.pluralize(guest.snapshots, 'snapshot')}: libvirt cannot move "
            "them while it runs; delete them, or stop the guest and move it cold"
        )
    if not guest.active and guest.orphaned_layers:
        yield (
            f"the guest has snapshots with files that no disk uses "
            f"({', '.join(guest.orphaned_layers)}): delete those snapshots first"
        )


def _option_conflicts(guest: GuestReport, request: CheckedMigration) -> Iterator[str]:
    if guest.active and request.options.live is False:
        yield "live=False, but the guest runs: stop it first, or leave live out"
    if guest.active and request.options.offline:
        yield "offline=True, but the guest runs: stop it first, or leave offline out"
    if not guest.active and request.options.postcopy:
        yield "postcopy=True, but the guest does not run"
