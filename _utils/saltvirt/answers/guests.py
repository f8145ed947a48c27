"""What a host answers when it is asked for all that it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from saltvirt.answers.migration import Certificate, UnfinishedMigration
from saltvirt.schema import Message, optional


@dataclass(frozen=True, kw_only=True)
class HostGuests(Message):
    """guests: name to libvirt's word for its state. target_leftovers: the guests of whose undone
    migrations to this host something is still here; leavings: the same, of a host that is not
    updated yet."""

    guests: dict[str, str]
    target_leftovers: tuple[str, ...] | None = optional(None)
    leavings: tuple[str, ...] = optional(())

    @property
    def leftover_guests(self) -> tuple[str, ...]:
        """The guests of whose undone migrations to this host something is still here."""
        return self.leavings if self.target_leftovers is None else self.target_leftovers


@dataclass(frozen=True, kw_only=True)
class MigrationFacts(HostGuests):
    """What `virt.migrate_locations` answers. unfinished: guests whose migration from here was
    broken off. ratios, limits: its own `virt:ratios` and `virt:placement`, as they are. address:
    where guests that come reach it; None: by its name. certificates: by their use. maintenance: why
    it takes no guests. uuids: name to UUID; empty of a host that does not tell. unmounted: its
    mount points on which nothing is mounted."""

    unfinished: tuple[str, ...]
    ratios: Any = None
    limits: Any = None
    address: str | None = None
    certificates: dict[str, Certificate] = field(default_factory=dict)
    maintenance: str | None = None
    uuids: dict[str, str] = optional({})
    unmounted: tuple[str, ...] = optional(())


@dataclass(frozen=True)
class OrphanedDisks(Message):
    """What an operation that died has left of disks that it made. what: the operation; disks: paths
    that can go; unsure: path to why it stays."""

    what: str
    disks: tuple[str, ...]
    unsure: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Leftovers(HostGuests):
    """What `virt.leftovers` answers. unfinished: guests whose creation was interrupted. used: those
    of them that run or were ever started, to how that is known. migrations: guest to its migration
    from here. left: `NAME@HOST` of what a host that did not answer may hold for a guest. at_work:
    guest to the operation at work on it. operations: guest to the mark of the `salt-run virt.init`
    that made it; None of a host that does not tell. made: guest to its DeadDisks. backups: guests
    of whose backups something is left by processes that died."""

    unfinished: tuple[str, ...]
    migrations: dict[str, UnfinishedMigration]
    used: dict[str, str] = field(default_factory=dict)
    at_work: dict[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    operations: dict[str, str] | None = optional(None)
    made: dict[str, OrphanedDisks] = field(default_factory=dict)
    backups: tuple[str, ...] = optional(())
