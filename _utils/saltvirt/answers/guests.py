"""Answers about the guests of a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from saltvirt.answers.migration import Certificate, UnfinishedMigration
from saltvirt.schema import Message, optional


@dataclass(frozen=True, kw_only=True)
class HostGuests(Message):
    """guests: name to libvirt's name of the state. target_leftovers: guests whose rolled back
    migrations to this host have left something here."""

    guests: dict[str, str]
    target_leftovers: tuple[str, ...] = optional(())


@dataclass(frozen=True, kw_only=True)
class MigrationFacts(HostGuests):
    """Answer of `virt.migrate_locations`. unfinished: guests whose migration from here was
    interrupted. ratios, limits: its own `virt:ratios` and `virt:placement`. address: address for
    incoming guests; None: its name. certificates: by their use. maintenance: the reason why it
    accepts no guests. uuids: name to UUID; empty if the host does not report them. unmounted: its
    mount points that are not mounted."""

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
    """Disks that an interrupted operation created. operation: its name; disks: paths that can be
    removed; unsure: path to the reason why it is kept."""

    operation: str
    disks: tuple[str, ...]
    unsure: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Leftovers(HostGuests):
    """Answer of `virt.leftovers`. unfinished: guests whose creation was interrupted. used: those of
    them that run or were ever started, with the evidence. migrations: guest to its migration from
    here. purgeable: `NAME@HOST`: leftovers that an unreachable host may have. at_work: guest to its
    running operation. operations: guest to the mark of the `salt-run virt.init` that created it.
    orphaned_disks: guest to its OrphanedDisks. backups: guests
    whose backups have leftovers of processes that died."""

    unfinished: tuple[str, ...]
    migrations: dict[str, UnfinishedMigration]
    used: dict[str, str] = field(default_factory=dict)
    at_work: dict[str, str] = field(default_factory=dict)
    purgeable: tuple[str, ...] = ()
    operations: dict[str, str] = optional({})
    orphaned_disks: dict[str, OrphanedDisks] = field(default_factory=dict)
    backups: tuple[str, ...] = optional(())


@dataclass(frozen=True)
class GuestInfo(Message):
    """A guest in the answer of `virt.vm_info` or `virt.full_info`. addresses: those known without
    asking the guest. details: all other keys."""

    UNDECLARED: ClassVar[str] = "details"

    state: str = optional("")
    graphics: dict[str, Any] | None = optional(None)
    disks: dict[str, dict[str, Any]] | None = optional(None)
    nics: dict[str, dict[str, Any]] | None = optional(None)
    pending: tuple[str, ...] | None = optional(None)
    addresses: tuple[str, ...] | None = optional(None)
    autostart: bool | None = optional(None)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HostInfo(Message):
    """Answer of `virt.full_info`. vm_info: name of a guest to its data. details: all other keys."""

    UNDECLARED: ClassVar[str] = "details"

    vm_info: dict[str, GuestInfo] | None = optional(None)
    details: dict[str, Any] = field(default_factory=dict)
