"""Remove backups that no rule keeps; see docs/how-to/backups.md.

A backup is renamed before it is deleted, and dependent backups are removed first. After an
interruption at any time, all remaining backups are complete.
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
    """Prune the backups of a guest; return the verdicts, the newest first. test: remove nothing.

    Before a backup is removed because a verification found it broken, it is verified again: if the
    fault was in the machine, the backup counts as good. Raises Busy during a backup.
    """
    rechecked: set[str] = set()
    extra_holds: dict[str, str] = {}
    while True:
        # on a read-only file system, such as a snapshot, no backup can be created meanwhile
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
        # without the lock, because it takes long
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
    """Remove backups and return the final verdicts. The caller holds the lock."""
    while used := _remove(target, uuid, verdicts):
        # a process began to read it meanwhile: keep it, and all on which it depends
        holds[used] = pins.hold_reason(target.folder, uuid, used) or retention.READ
        removed = [
            verdict
            for verdict in verdicts
            if not verdict.retained and not _exists(target, uuid, verdict)
        ]
        verdicts = retention.judge(target.catalog(uuid), rules, holds) + removed
        verdicts.sort(key=lambda verdict: verdict.backup_id, reverse=True)
    return verdicts


def _doubtful(catalog: Catalog, verdicts: Iterable[RetentionVerdict]) -> set[str]:
    """Return backups whose stored verification result decides about a removal."""
    removable = [
        item.backup_id for item in verdicts if not item.retained and catalog.problem(item.backup_id)
    ]
    below = {each for item in removable for each in {item, *catalog.dependencies(item)}}
    results = {item: catalog.backups[item].verification for item in below}
    return {item for item, result in results.items() if result and result.broken_disks}


def _verify_again(target: BackupTarget, uuid: str, backup_id: str) -> dict[str, str]:
    """Verify a backup again. If this is not possible now, return {backup: reason for keeping
    it}."""
    try:
        verify.backup(target, uuid, backup_id, receive.now(), lambda _done, _total: None)
    except errors.NotFound:
        return {}
    except errors.VirtError as exc:
        return {backup_id: f"it was found broken, and cannot be verified again now: {exc.text}"}
    return {}


def _list_holds(target: BackupTarget, uuid: str) -> Iterator[tuple[str, str]]:
    """Yield (backup, reason) for backups that have to be kept regardless of the rules."""
    for backup_id in target.catalog(uuid).backups:
        reason = pins.hold_reason(target.folder, uuid, backup_id)
        if reason or target.is_used(uuid, backup_id):
            yield backup_id, reason or retention.READ


def _remove(target: BackupTarget, uuid: str, verdicts: Iterable[RetentionVerdict]) -> str | None:
    """Remove backups; return the first one that is in use, if any."""
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
