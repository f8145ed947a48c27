"""What the machine of a target answers of what it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.backup.model.verification import Verification
from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class PruneDecision(Message):
    """A backup that stays, or does not: then it was removed, or would be. why: either."""

    ident: str
    stays: bool
    why: str


@dataclass(frozen=True)
class GuestPruneResult(Message):
    """What became of a guest's backups, the newest first. guest: its name in the last that can be
    read. trouble: why nothing of it was removed. untold: so many more stay."""

    uuid: str
    guest: str | None = None
    backups: tuple[PruneDecision, ...] = ()
    trouble: str | None = None
    untold: int = optional(0)


@dataclass(frozen=True)
class PruneResult(Message):
    """What ``virt.backup_prune`` answers."""

    guests: tuple[GuestPruneResult, ...] = ()


@dataclass(frozen=True)
class VerifyResult(Message):
    """A backup that was read back. verified: what was found; None: it could not be, as trouble
    says. wrong: why it is not good, or what it stands on."""

    uuid: str
    ident: str
    guest: str | None = None
    verified: Verification | None = None
    trouble: str | None = None
    wrong: str | None = None


@dataclass(frozen=True)
class VerifyReport(Message):
    """What ``virt.backup_verify`` answers. untold: so many more are good."""

    backups: tuple[VerifyResult, ...] = ()
    untold: int = optional(0)
