"""Guests that run from a backup before its blocks are theirs."""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.schema import Message

FILE = "stands.json"
MAX_BYTES = 1024**2

PULLING, DISCONNECTED, OFF, COMPLETE, MISSING = "pulling", "cut", "off", "whole", "gone"


@dataclass(frozen=True)
class BackupPin(Message):
    """Who stands on a backup: the guest of that name on that hypervisor, since then."""

    guest: str
    host: str
    since: str = ""

    def is_same_guest(self, pin: BackupPin) -> bool:
        """Whether it is the same guest there."""
        return (self.guest, self.host) == (pin.guest, pin.host)

    @property
    def hold_reason(self) -> str:
        """Why the backup stays."""
        return f"{self.guest} on {self.host} stands on it"


@dataclass(frozen=True)
class BackupPins(Message):
    """What ``stands.json`` beside a record says. format: of the file."""

    stands: tuple[BackupPin, ...] = ()
    format: int = 1


@dataclass(frozen=True)
class PinnedBackup(Message):
    """A backup on which a guest stands, as ``virt.backup_stands`` answers. uuid: of the guest that
    was backed up."""

    uuid: str
    ident: str
    stand: BackupPin


@dataclass(frozen=True)
class LiveRestoreStatus(Message):
    """What ``virt.backup_standing`` answers of a guest.

    state: PULLING its blocks come in; CUT: they do not, and why says it; OFF: the guest is off;
    WHOLE: it stands on no backup; GONE: there is no such guest. percent: so much of its disks is
    here. paused: it was paused at a block that could not be read. disks: disk to its percents.
    """

    state: str
    ident: str | None = None
    percent: int = 0
    paused: bool = False
    why: str | None = None
    disks: dict[str, int] = field(default_factory=dict)
