"""Validate and sanitize the answers of hosts before anything reads them.

A host may run another version or be compromised: an invalid answer is an error of that host.
"""

from __future__ import annotations

import math
from typing import Any

from saltvirt import errors, sanitize, schema
from saltvirt.answers import (
    created,
    guests,
    maintenance,
    migration,
    power,
    removal,
    snapshots,
    versions,
)
from saltvirt.placement import facts

NUMBER = (int, float)
# a chain of 200 backing files is what libvirt's own XML can hold
_DEEP = 400
STATES = {str: str}
_TEXT = (str, None)
_CERT = {"issuer": str, "sha256": str}
_TLS = {"certs": {str: _CERT}, "trusted": [str], "daemon": str, "problems?": [str]}
_SHOWN = {
    "graphics?": ({str: object}, None),
    "disks?": ({str: {str: object}}, None),
    "nics?": ({str: {str: object}}, None),
    "state?": str,
    "pending?": ([str], None),
}
# function to what it returns: a Fact, a type, several of them, [of each], {str: of each value}, or
# the keys that must be there ("key?": may be there)
ANSWERS = {
    "virt.vm_state": STATES,
    "virt.full_info": {"vm_info?": ({str: _SHOWN}, None)},
    "virt.list_domains": [str],
    "virt.running_names": [str],
    "virt.names_on_disk": [str],
    "virt.inventory": facts.Inventory,
    "virt.leftovers": guests.Leftovers,
    "virt.power": power.PowerChange,
    "virt.migrate_locations": guests.MigrationFacts,
    "virt.init": created.CreatedGuest, "virt.clone": created.CreatedGuest,
    "virt.rename": created.RenamedGuest,
    "virt.maintenance": (maintenance.MaintenanceMark, None),
    "virt.guest_addresses": {str: {str: {str: object}}},
    "virt.list_snapshots": {str: ([snapshots.SnapshotInfo], {"error": str}, str)},
    "virt.snapshot": snapshots.SnapshotTaken,
    "virt.migrate": migration.MigrationResult,
    "virt.migrate_recover": migration.RecoveryResult,
    "virt.migrate_clean": removal.CleanupResult,
    "virt.vm_info": {str: _SHOWN},
    "virt.migrate_unfinished": {str: migration.UnfinishedMigration},
    "virt.purge": (bool, {"left": {str: str}}), "virt.remove_made": bool,
    "virt.revert_snapshot": snapshots.SnapshotReverted,
    "virt.delete_snapshots": snapshots.SnapshotsDeleted,
    "virt.versions": versions.Versions,
    "virt.shared_disks": {str: str},
    "virt.storage_users": {str: (str, None)},
    "virt.migratable": migration.MigrationCheck,
    "virt.tls_info": _TLS,
    "virt.tls_update": {"changes": {str: object}, "info": _TLS},
}  # fmt: skip
# the same of those that answer otherwise with test=True
TESTED = {
    "virt.init": {str: object}, "virt.clone": {str: object}, "virt.rename": {str: object},
    "virt.purge": removal.RemovalPlan, "virt.remove_made": removal.RemovalPlan,
    "virt.migrate_clean": removal.CleanPlan,
}  # fmt: skip


def fits(data: Any, shape: Any) -> bool:
    """Return whether the data has the shape."""
    return mismatch(data, shape) is None


def mismatch(data: Any, shape: Any, path: str = "it") -> str | None:
    """Return where the data differs from the shape, such as ``guests.web1``; None if it fits."""
    if isinstance(shape, tuple):
        several = [mismatch(data, option, path) for option in shape]
        return None if None in several else several[0]
    if isinstance(shape, type) and issubclass(shape, schema.Message):
        return schema.mismatch(data, shape)
    if shape is None or isinstance(shape, type):
        return None if isinstance(data, shape or type(None)) else path
    return _inner_mismatch(data, shape, path) if isinstance(data, type(shape)) else path


def _inner_mismatch(data: Any, shape: Any, path: str) -> str | None:
    """Return where the content of a list or mapping differs from the shape."""
    if isinstance(shape, list):
        inner = [(number, value, shape[0]) for number, value in enumerate(data)]
    elif str in shape:
        if not all(isinstance(key, str) for key in data):
            return path
        inner = [(key, value, shape[str]) for key, value in data.items()]
    else:
        keys = {key.rstrip("?"): expected for key, expected in shape.items()}
        missing = next((key for key in keys if key in shape and key not in data), None)
        if missing:
            return f"{path} without {missing}"
        inner = [(key, data[key], expected) for key, expected in keys.items() if key in data]
    above = "" if path == "it" else f"{path}."
    mismatches = (mismatch(value, expected, f"{above}{key}") for key, value, expected in inner)
    return next((problem for problem in mismatches if problem), None)


def check(fun: str | None, kwarg: dict[str, Any] | None, data: Any) -> None:
    """Raise InvalidInput, which names the place, if the answer does not fit the function."""
    name = fun or ""
    shape = ANSWERS.get(name, object)
    if (kwarg or {}).get("test"):
        shape = TESTED.get(name, shape)
    problem = mismatch(data, shape)
    if problem:
        raise errors.InvalidInput(
            f"its answer to {fun} is not what this version expects: {problem}"
        )


def clean(data: Any, depth: int = 0) -> Any:
    """Return the data without escape sequences and control characters in its texts.

    Bytes become text; infinity and NaN become None. depth: the depth of this data. Raises
    RecursionError if the data is nested more deeply than any valid answer: Python's own limit
    differs between versions.
    """
    if depth > _DEEP:
        raise RecursionError(f"nested more than {_DEEP} deep")
    if isinstance(data, (bytes, bytearray)):
        data = data.decode(errors="replace")
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if isinstance(data, str):
        return sanitize.text(data)
    if isinstance(data, dict):
        return {clean(key): clean(value, depth + 1) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [clean(item, depth + 1) for item in data]
    return data


def seconds(value: Any) -> float | None:
    """Return a duration from a host, or None if it is not valid."""
    good = isinstance(value, NUMBER) and not isinstance(value, bool)
    return value if good and math.isfinite(value) and value >= 0 else None


def step(value: dict[str, Any]) -> dict[str, Any]:
    """Return the event of a host's step, with a valid percentage or none."""
    event: dict[str, Any] = clean(value)
    percent = event.get("percent")
    if isinstance(percent, bool) or not isinstance(percent, NUMBER):
        event.pop("percent", None)
    return event
