"""The backups of one guest, in short."""

from __future__ import annotations

import time
from typing import Any

from saltvirt import errors
from saltvirt.backup.manager import backup, target_upkeep
from saltvirt.backup.model import age
from saltvirt.fleet.client import Fleet


def describe(fleet: Fleet, name: str, uuid: str) -> dict[str, Any]:
    """Return ``backups``: ``count``, and ``last``: the last good backup of the guest at any target,
    with ``target``, ``backup_id`` and ``age_s``. ``unknown`` names targets that do not answer."""
    count, candidates, silent = 0, [], list[str]()
    try:
        targets = target_upkeep.select_targets(fleet, None)
    except errors.VirtError as exc:
        return {"backups": None, "unknown": {"backups": exc.text}}
    for target in targets:
        try:
            listed = backup.list_at(fleet, target, name, uuid)
        except errors.VirtError as exc:
            silent.append(f"{target.name}: {exc.text}")
            continue
        count += sum(entry.uuid == uuid for entry in listed)
        newest = age.newest(listed, uuid, time.time())
        if newest:
            age_s, entry = newest
            candidates.append((age_s, target.name, entry.backup_id))
    last = None
    if candidates:
        age_s, target_name, backup_id = min(candidates)
        last = {"target": target_name, "backup_id": backup_id, "age_s": round(age_s)}
    described: dict[str, Any] = {"backups": {"count": count, "last": last}}
    return {**described, "unknown": {"backups": "; ".join(silent)}} if silent else described
