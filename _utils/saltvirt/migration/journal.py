"""What a migration writes down: on its own host before it does it, and on the target it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.migration.facts import GuestReport
from saltvirt.schema import Message, optional

# how far it got. BEGUN: the guest can be nowhere but here, whatever the target holds for it.
# MOVING: it may be on either host. MOVED: both hosts have confirmed that it is on the target
PREPARING, MOVING, MOVED = "begun", "moving", "moved"
# that policy=pause is about to pause the guest here; that it has
PAUSING, PAUSED = "pausing", "paused"


@dataclass(frozen=True)
class PendingFile(Message):
    """A file that is about to be made on the target. bytes: how long it is before it is filled, by
    which it is known as ours; None of a device."""

    path: str
    bytes: int | None


@dataclass(frozen=True)
class TargetFiles(Message):
    """What a migration has made on its target for the guest of that name.

    created: files, with the reservation; making: the one that was just being made; folders: in the
    order in which they were made. looks: file whose copy was whole to how it looked then, see
    remote_storage.look.
    """

    name: str
    created: tuple[str, ...] = ()
    making: PendingFile | None = None
    folders: tuple[str, ...] = ()
    looks: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class TargetLeftovers(TargetFiles):
    """The same on a target that did not answer. uuid: the guest's; target: libvirt's URI; since:
    seconds of the epoch; vouched: a person said that it does not run the guest."""

    uuid: str
    target: str
    since: int = 0
    vouched: bool = False


@dataclass(frozen=True)
class JournalEntry(Message):
    """A migration that has begun. target: libvirt's URI.

    phase: BEGUN, MOVING or MOVED; None was written by versions that did not know it. over: it is
    complete, but for the reservation. created, making, folders, looks: as MadeThere has them.
    pause: PAUSING or PAUSED. left: files that stay here when the guest is gone; keep_source: they
    are kept. xml: the guest's definition.
    checkpoints: the XML of the guest's, parents first.
    """

    report: GuestReport
    target: str
    phase: str | None = None
    created: tuple[str, ...] = ()
    making: PendingFile | None = None
    folders: tuple[str, ...] = ()
    looks: dict[str, Any] | None = None
    pause: str | None = None
    left: tuple[str, ...] = ()
    keep_source: bool = False
    xml: str = ""
    checkpoints: tuple[str, ...] = ()
    over: bool = optional(False)

    @property
    def target_files(self) -> TargetFiles:
        """What it has made on its target."""
        return TargetFiles(self.report.name, self.created, self.making, self.folders, self.looks)


@dataclass(frozen=True)
class LeftoverNote(Message):
    """What the migration of a guest has left on this host. files: path to how it looked; images:
    those of them that are images of many guests; folders: that were made for them."""

    name: str
    files: dict[str, Any]
    folders: tuple[str, ...]
    images: tuple[str, ...]
