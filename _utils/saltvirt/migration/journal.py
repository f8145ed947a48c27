"""The records of a migration: on the source before each step, and on the target that it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.migration.facts import GuestReport
from saltvirt.schema import Message, optional

# the phase. PREPARING: the guest can only be on the source, whatever the target has.
# MOVING: it may be on either host. MOVED: both hosts have confirmed that it is on the target
PREPARING, MOVING, MOVED = "begun", "moving", "moved"
# policy=pause is about to pause the guest on the source; it has paused the guest
PAUSING, PAUSED = "pausing", "paused"


@dataclass(frozen=True)
class PendingFile(Message):
    """A file that is about to be created on the target. bytes: its length before it is filled,
    which identifies it as ours; None for a device."""

    path: str
    bytes: int | None


@dataclass(frozen=True)
class TargetFiles(Message):
    """What a migration has created on its target for a guest.

    created: files, with the reservation; making: the file that was being created; folders: in the
    order of their creation. fingerprints: fingerprint of each file when its copy was complete, see
    remote_storage.fingerprint.
    """

    name: str
    created: tuple[str, ...] = ()
    making: PendingFile | None = None
    folders: tuple[str, ...] = ()
    fingerprints: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class TargetLeftovers(TargetFiles):
    """The same on a target that did not answer. uuid: the guest's; target: libvirt's URI; since:
    seconds of the epoch; operator_confirmed: an operator declared that the target does not run the
    guest."""

    uuid: str
    target: str
    since: int = 0
    operator_confirmed: bool = False


@dataclass(frozen=True)
class JournalEntry(Message):
    """A migration that has begun. target: libvirt's URI.

    phase: PREPARING, MOVING or MOVED; None if it is not recorded. completed: it is complete, except
    for the reservation. created, making, folders, fingerprints: as in TargetFiles. pause: PAUSING
    or PAUSED. source_files: files that remain on the source; keep_source: they are not deleted.
    xml: the guest's definition. checkpoints: their XML, parents first.
    """

    report: GuestReport
    target: str
    phase: str | None = None
    created: tuple[str, ...] = ()
    making: PendingFile | None = None
    folders: tuple[str, ...] = ()
    fingerprints: dict[str, Any] | None = None
    pause: str | None = None
    source_files: tuple[str, ...] = ()
    keep_source: bool = False
    xml: str = ""
    checkpoints: tuple[str, ...] = ()
    completed: bool = optional(False)

    @property
    def target_files(self) -> TargetFiles:
        """What it has created on its target."""
        return TargetFiles(
            self.report.name, self.created, self.making, self.folders, self.fingerprints
        )


@dataclass(frozen=True)
class LeftoverNote(Message):
    """What the migration of a guest has left on this host. files: path to fingerprint; images:
    those of them that are images of several guests; folders: that were created for them."""

    name: str
    files: dict[str, Any]
    folders: tuple[str, ...]
    images: tuple[str, ...]
