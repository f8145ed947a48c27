"""Guests that run from a backup until all their blocks are copied (live restore)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from saltvirt.schema import Message

FILE = "stands.json"
MAX_BYTES = 1024**2

PULLING, DISCONNECTED, OFF = "pulling", "disconnected", "off"
COMPLETE, MISSING = "complete", "missing"


@dataclass(frozen=True)
class BackupPin(Message):
    """A guest that runs from a backup on this hypervisor since this time."""

    guest: str
    host: str
    since: str = ""

    def is_same_guest(self, pin: BackupPin) -> bool:
        """Whether the other pin is of the same guest on the same host."""
        return (self.guest, self.host) == (pin.guest, pin.host)

    @property
    def hold_reason(self) -> str:
        """Why the backup is kept."""
        return f"{self.guest} on {self.host} runs from it"


@dataclass(frozen=True)
class BackupPins(Message):
    """Content of ``stands.json`` beside a record. format: of the file."""

    ALIASES: ClassVar[dict[str, str]] = {"stands": "pins"}

    pins: tuple[BackupPin, ...] = ()
    format: int = 1


@dataclass(frozen=True)
class PinnedBackup(Message):
    """A backup from which a guest runs, in the answer of ``virt.backup_stands``. uuid: of the guest
    that was backed up."""

    uuid: str
    backup_id: str
    pin: BackupPin


@dataclass(frozen=True)
class LiveRestoreStatus(Message):
    """Answer of ``virt.backup_standing``.

    state: PULLING: blocks are being copied; DISCONNECTED: they are not, and reason says why; OFF:
    the guest is off; COMPLETE: it does not depend on a backup; MISSING: the guest does not exist.
    percent: copied part of its disks. paused: paused at a block that could not be read. disks: disk
    to its percentage.
    """

    state: str
    backup_id: str | None = None
    percent: int = 0
    paused: bool = False
    reason: str | None = None
    disks: dict[str, int] = field(default_factory=dict)
