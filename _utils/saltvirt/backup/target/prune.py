"""Removes what no longer has to stay; docs/backups.md says what does.

A backup is renamed before it is deleted, and what stands on another goes first: whenever this ends,
by kill -9, too, each backup that is left is as whole as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext

from saltvirt import errors
from saltvirt.backup.model import retention
from saltvirt.backup.model.catalog import Catalog
from saltvirt.backup.model.retention import Retention, RetentionVerdict
from saltvirt.backup.target import pins, receive, verify
from saltvirt.backup.target.target import BackupTarget


def prune_guest(
    target: BackupTarget, uuid: str, rules: Retention, test: bool = False
) -> list[RetentionVerdict]:
    """What became of each backup of a guest, the newest first. test: what would, and why.

    What would be removed and was found broken is read again first: the fault may have been the
    machine's, and then it counts as a good one. Raises Busy while one is made.
    """
    rechecked: set[str] = set()
    extra_holds: dict[str, str] = {}
    while True:
        # where nobody can write, as in a snapshot, nobody makes a backup either
        look_only = test and target.folder.is_read_only
        with nullcontext() if look_only else target.lock(uuid, purpose="virt.backup_prune"):
            if not test:
                target.sweep(uuid)
            catalog, holds = (
                target.catalog(uuid),
                {**extra_holds, **dict(_list_holds(target, uuid))},
            )
            verdicts = retention.judge(catalog, rules, holds)
            recheck = [] if test else sorted(_doubtful(catalog, verdicts) - rechecked)
            if not recheck:
                return verdicts if test else _apply(target, uuid, rules, verdicts, holds)
        # without the lock, as it takes long
        for backup_id in recheck:
            rechecked.add(backup_id)
            extra_holds |= _verify_again(target, uuid, backup_id)


def _apply(
    target: BackupTarget,
    uuid: str,
    rules: Retention,
    verdicts: list[RetentionVerdict],
    holds: dict[str, str],
) -> list[RetentionVerdict]:
    """What became of each, after what does not stay was removed. Hold the lock."""
    while used := _remove(target, uuid, verdicts):
        # somebody began to read it since: that, and what it stands on, stays
        holds[used] = pins.hold_reason(target, uuid, used) or retention.READ
        removed = [
            verdict
            for verdict in verdicts
            if not verdict.retained and not _exists(target, uuid, verdict)
        ]
        verdicts = retention.judge(target.catalog(uuid), rules, holds) + removed
        verdicts.sort(key=lambda verdict: verdict.backup_id, reverse=True)
    return verdicts


def _doubtful(catalog: Catalog, verdicts: Iterable[RetentionVerdict]) -> set[str]:
    """The backups by whose marks something is to be removed as one that is not good."""
    removable = [
        item.backup_id for item in verdicts if not item.retained and catalog.problem(item.backup_id)
    ]
    below = {each for item in removable for each in {item, *catalog.dependencies(item)}}
    results = {item: catalog.backups[item].verification for item in below}
    return {item for item, result in results.items() if result and result.broken}


def _verify_again(target: BackupTarget, uuid: str, backup_id: str) -> dict[str, str]:
    """Reads a backup again; (itself to why it stays) if that cannot be done now."""
    try:
        verify.backup(target, uuid, backup_id, receive.now(), lambda _done, _total: None)
    except errors.NotFound:
        return {}
    except errors.VirtError as exc:
        return {backup_id: f"it was found broken, and cannot be read again now: {exc.text}"}
    return {}


def _list_holds(target: BackupTarget, uuid: str) -> Iterator[tuple[str, str]]:
    """(a backup, why it stays whatever the rules say)."""
    for backup_id in target.catalog(uuid).backups:
        reason = pins.hold_reason(target, uuid, backup_id)
        if reason or target.is_used(uuid, backup_id):
            yield backup_id, reason or retention.READ


def _remove(target: BackupTarget, uuid: str, verdicts: Iterable[RetentionVerdict]) -> str | None:
    """Removes what does not stay; the first that could not be, as somebody reads it."""
    for verdict in verdicts:
        if (
            not verdict.retained
            and _exists(target, uuid, verdict)
            and not target.remove(uuid, verdict.backup_id)
        ):
            return verdict.backup_id
    return None


def _exists(target: BackupTarget, uuid: str, verdict: RetentionVerdict) -> bool:
    return target.folder.exists(uuid, verdict.backup_id)
