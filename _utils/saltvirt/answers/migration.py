"""What a guest's host answers about its migration: whether it can be, was, or had to be ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class Certificate(Message):
    """One that a host shows to others. until: UTC, ISO 8601. wrong: why it does not hold now."""

    host: str
    file: str
    until: str
    wrong: str | None = None


@dataclass(frozen=True)
class MigrationCheck(Message):
    """What `virt.migratable` answers. reasons: all that is against it. standing: it can go nowhere.
    disks: target such as `vda` to what would happen to it; certificates: those that the move
    needs. Both are None where no target was asked."""

    migratable: bool
    reasons: tuple[str, ...]
    standing: bool = optional(False)
    disks: dict[str, str] | None = optional(None)
    certificates: tuple[Certificate, ...] | None = optional(None)


@dataclass(frozen=True, kw_only=True)
class RecoveryResult(Message):
    """What `virt.migrate_recover` answers. outcome: `moved`, `undone`, `removed` or `nothing`.
    source, target: host names; live: it was running. deleted: files; kept: file to why it stays;
    left: host to why something of it is still there. checkpoints_lost: checkpoint that the target's
    libvirt did not take to its reason."""

    name: str = optional("")
    outcome: str = optional("")
    source: str | None = optional(None)
    target: str | None = optional(None)
    live: bool | None = optional(None)
    deleted: tuple[str, ...] = ()
    kept: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] | None = optional(None)
    checkpoints_lost: dict[str, str] | None = optional(None)

    @property
    def leftovers_by_host(self) -> dict[str, str]:
        """Host to why something of it is still there."""
        return self.left or {}


@dataclass(frozen=True, kw_only=True)
class MigrationResult(RecoveryResult):
    """What `virt.migrate` answers; where an earlier migration had moved the guest already and was
    only ended, a Recovered. live: it ran while its memory travelled. transport: in words.
    memory_bytes, disk_bytes: how much was moved. disks: target such as `vda` to what was done with
    it."""

    outcome: str = field()  # it must be there
    transport: str | None = None
    time_ms: int | None = None
    downtime_ms: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    disks: dict[str, str] = field(default_factory=dict)


def parse_migrate(data: object, host: str) -> RecoveryResult:
    """The Moved, or the Recovered, in a host's answer to ``virt.migrate``. Raises BadAnswer."""
    moved = MigrationResult.from_answer(data, host)
    return moved if moved.transport else RecoveryResult.from_answer(data, host)


@dataclass(frozen=True)
class UnfinishedMigration(Message):
    """A migration that was broken off, or is at work, in what `virt.migrate_unfinished` answers:
    the guest's name to it. target: libvirt's URI. uuid: the guest's, whatever its name is by now;
    of one that is left there is none. left: it was ended without its target, which
    did not answer and may hold something of it. wrong: why what is written of it cannot be read,
    and what to do; the target is empty then."""

    target: str
    at_work: bool = False
    left: bool = optional(False)
    wrong: str | None = optional(None)
    uuid: str | None = optional(None)
