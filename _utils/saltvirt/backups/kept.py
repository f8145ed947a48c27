"""What the machine of a target answers of what it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.backups.marks import Verified
from saltvirt.wire import Fact, seldom


@dataclass(frozen=True)
class KeptBackup(Fact):
    """A backup that stays, or does not: then it was removed, or would be. why: either."""

    ident: str
    stays: bool
    why: str


@dataclass(frozen=True)
class KeptGuest(Fact):
    """What became of a guest's backups, the newest first. guest: its name in the last that can be
    read. trouble: why nothing of it was removed. untold: so many more stay."""

    uuid: str
    guest: str | None = None
    backups: tuple[KeptBackup, ...] = ()
    trouble: str | None = None
    untold: int = seldom(0)


@dataclass(frozen=True)
class Kept(Fact):
    """What ``virt.backup_prune`` answers."""

    guests: tuple[KeptGuest, ...] = ()


@dataclass(frozen=True)
class ReadBack(Fact):
    """A backup that was read back. verified: what was found; None: it could not be, as trouble
    says. wrong: why it is not good, or what it stands on."""

    uuid: str
    ident: str
    guest: str | None = None
    verified: Verified | None = None
    trouble: str | None = None
    wrong: str | None = None


@dataclass(frozen=True)
class AllReadBack(Fact):
    """What ``virt.backup_verify`` answers. untold: so many more are good."""

    backups: tuple[ReadBack, ...] = ()
    untold: int = seldom(0)
