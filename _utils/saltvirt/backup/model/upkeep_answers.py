"""Answers of a target host about pruning and verification."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.backup.model.retention import RetentionVerdict
from saltvirt.backup.model.verification import Verification
from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class GuestPruneResult(Message):
    """Result of pruning the backups of a guest, the newest first.

    guest: name in the newest readable record. error: why nothing was removed. omitted: number of
    kept backups that are not listed.
    """

    uuid: str
    guest: str | None = None
    backups: tuple[RetentionVerdict, ...] = ()
    error: str | None = None
    omitted: int = optional(0)


@dataclass(frozen=True)
class PruneResult(Message):
    """Answer of ``virt.backup_prune``."""

    guests: tuple[GuestPruneResult, ...] = ()


@dataclass(frozen=True)
class VerifyResult(Message):
    """Result of verifying a backup.

    verification: the findings; None if the verification failed, for the reason in error. problem:
    why the backup, or one on which it depends, is not good.
    """

    uuid: str
    backup_id: str
    guest: str | None = None
    verification: Verification | None = None
    error: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class VerifyReport(Message):
    """Answer of ``virt.backup_verify``. omitted: number of good backups that are not listed."""

    backups: tuple[VerifyResult, ...] = ()
    omitted: int = optional(0)
