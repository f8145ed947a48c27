"""The calls about migrations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from saltvirt.answers.calls import Call, Timeout
from saltvirt.answers.guest_calls import HostRequest, NamedGuestRequest
from saltvirt.answers.guests import MigrationFacts
from saltvirt.answers.migration import (
    Certificate,
    MigrationCheck,
    MigrationResult,
    RecoveryResult,
    UnfinishedMigration,
)
from saltvirt.answers.removal import CleanPlan, CleanupResult
from saltvirt.placement.account import PlacementTerms
from saltvirt.schema import Message, optional


@dataclass(frozen=True, kw_only=True)
class MigrateRequest(Message):
    """Migrate a guest of the host, or check whether this is possible.

    vm_: name of the guest. target: name of the other host; None: only the guest is checked. ratios,
    limits, certificates, address, unmounted: what the target reported about itself, see
    MigrationFacts. placement: the master's policy. options: further arguments of ``virt.migrate``.
    """

    UNDECLARED: ClassVar[str] = "options"

    vm_: str
    target: str | None = optional(None)
    ratios: Any = optional(None)
    limits: Any = optional(None)
    certificates: dict[str, Certificate] = optional({})
    address: str | None = optional(None)
    unmounted: tuple[str, ...] = optional(())
    placement: PlacementTerms | None = optional(None)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RecoverRequest(Message):
    """End an interrupted migration on its source.

    lost: the other host, if the operator declared it lost. elsewhere: other hosts that have a guest
    with the same UUID. removed: the operator knows that the guest was removed on purpose.
    """

    vm_: str
    lost: str | None = optional(None)
    elsewhere: tuple[str, ...] = optional(())
    removed: bool = optional(False)


@dataclass(frozen=True)
class CleanRequest(Message):
    """Remove what undone migrations of a guest to the host have left. unused: paths on shared
    storage that no other host uses."""

    vm_: str
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class CleanPlanRequest(Message):
    """Report what a CleanRequest would delete."""

    vm_: str
    test: bool = True


LOCATIONS = Call("migrate_locations", HostRequest, MigrationFacts, Timeout.SHORT)
CHECK_MIGRATION = Call("migratable", MigrateRequest, MigrationCheck)
MIGRATE = Call("migrate", MigrateRequest, MigrationResult)
ABORT_MIGRATION = Call("migrate_abort", NamedGuestRequest, bool)
# guest, or GUEST@HOST for leftovers, to its migration
LIST_UNFINISHED = Call(
    "migrate_unfinished", HostRequest, dict[str, UnfinishedMigration], Timeout.SHORT
)
RECOVER_MIGRATION = Call("migrate_recover", RecoverRequest, RecoveryResult)
PLAN_CLEANUP = Call("migrate_clean", CleanPlanRequest, CleanPlan, Timeout.SHORT)
CLEAN_UP = Call("migrate_clean", CleanRequest, CleanupResult)
