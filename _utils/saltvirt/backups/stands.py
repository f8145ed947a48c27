"""Guests that run from a backup before its blocks are theirs."""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.wire import Fact

FILE = "stands.json"
MOST_BYTES = 1024**2

PULLING, CUT, OFF, WHOLE, GONE = "pulling", "cut", "off", "whole", "gone"


@dataclass(frozen=True)
class Stand(Fact):
    """Who stands on a backup: the guest of that name on that hypervisor, since then."""

    guest: str
    host: str
    since: str = ""

    def is_of(self, other: Stand) -> bool:
        """Whether it is the same guest there."""
        return (self.guest, self.host) == (other.guest, other.host)

    @property
    def why(self) -> str:
        """Why the backup stays."""
        return f"{self.guest} on {self.host} stands on it"


@dataclass(frozen=True)
class Stands(Fact):
    """What ``stands.json`` beside a record says. format: of the file."""

    stands: tuple[Stand, ...] = ()
    format: int = 1


@dataclass(frozen=True)
class StoodOn(Fact):
    """A backup on which a guest stands, as ``virt.backup_stands`` answers. uuid: of the guest that
    was backed up."""

    uuid: str
    ident: str
    stand: Stand


@dataclass(frozen=True)
class Standing(Fact):
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
