"""Answers about the migration of a guest."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class Certificate(Message):
    """A certificate of a host. valid_until: UTC, ISO 8601. problem: why it is not valid now."""

    host: str
    file: str
    valid_until: str
    problem: str | None = None


@dataclass(frozen=True)
class MigrationCheck(Message):
    """Answer of `virt.migratable`. reasons: all reasons against the migration. pinned: the guest
    cannot be migrated to any host. disks: target such as `vda` to what would happen to it;
    certificates: those that the migration needs. Both are None if no target was given."""

    migratable: bool
    reasons: tuple[str, ...]
    pinned: bool = optional(False)
    disks: dict[str, str] | None = optional(None)
    certificates: tuple[Certificate, ...] | None = optional(None)


@dataclass(frozen=True, kw_only=True)
class RecoveryResult(Message):
    """Answer of `virt.migrate_recover`. outcome: `moved`, `undone`, `removed` or `nothing`. source,
    target: host names; live: the guest was running. deleted: files; retained: file to the reason;
    leftovers: host to the reason why something is left there. checkpoints_lost: checkpoints that
    the target's libvirt refused, to the reason."""

    name: str = optional("")
    outcome: str = optional("")
    source: str | None = optional(None)
    target: str | None = optional(None)
    live: bool | None = optional(None)
    deleted: tuple[str, ...] = ()
    retained: dict[str, str] = field(default_factory=dict)
    leftovers: dict[str, str] | None = optional(None)
    checkpoints_lost: dict[str, str] | None = optional(None)

    @property
    def leftovers_by_host(self) -> dict[str, str]:
        """Host to the reason why something is left there."""
        return self.leftovers or {}


@dataclass(frozen=True, kw_only=True)
class MigrationResult(RecoveryResult):
    """Answer of `virt.migrate`; if an earlier migration had already moved the guest and was only
    finished, a RecoveryResult. live: the guest ran during the transfer. transport: a description.
    memory_bytes, disk_bytes: transferred data. disks: target such as `vda` to the action."""

    outcome: str = field()  # required
    transport: str | None = None
    time_ms: int | None = None
    downtime_ms: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    disks: dict[str, str] = field(default_factory=dict)

    @property
    def outcome_only(self) -> RecoveryResult:
        """The RecoveryResult if only an earlier migration was finished, otherwise all of it."""
        names = [item.name for item in fields(RecoveryResult)]
        recovery = RecoveryResult(**{name: getattr(self, name) for name in names})
        return self if self.transport else recovery


@dataclass(frozen=True)
class UnfinishedMigration(Message):
    """An interrupted or running migration in the answer of `virt.migrate_unfinished`. target:
    libvirt's URI. uuid: the guest's, independent of its current name; None for leftovers.
    has_leftovers: the migration was finished without its target, which did not answer and may still
    have something. problem: why its record cannot be read, and what to do; the target is empty
    then."""

    target: str
    at_work: bool = False
    has_leftovers: bool = optional(False)
    problem: str | None = optional(None)
    uuid: str | None = optional(None)
