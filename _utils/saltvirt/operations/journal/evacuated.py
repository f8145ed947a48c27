"""Record which guests this master moved away from a host in maintenance, before they leave.

The host also stores their names, but these alone decide nothing: only a guest that this master
moved away from the host returns to it. Guests are identified by UUID, because a name can change,
and another guest can get it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from saltvirt.fleet import private

# UUID of a guest to its name when it left
Guests = dict[str, str]


def _folder(opts: dict[str, Any]) -> Path:
    return Path(opts["cachedir"]) / "virt" / "away"


def _path(opts: dict[str, Any], host: str) -> Path:
    return _folder(opts) / host


def load(opts: dict[str, Any], host: str) -> Guests:
    """Return the guests that are away from the host."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        data = json.loads(_path(opts, host).read_text(encoding="utf-8"))
        return {str(uuid): str(name) for uuid, name in data.items()}
    return {}


def store(opts: dict[str, Any], host: str, guests: Mapping[str, str] | None) -> None:
    """Replace the record."""
    if guests:
        private.write(str(_path(opts, host)), json.dumps(dict(guests), sort_keys=True))
    else:
        _path(opts, host).unlink(missing_ok=True)
        _homes_path(opts, host).unlink(missing_ok=True)


def _homes_path(opts: dict[str, Any], host: str) -> Path:
    return Path(opts["cachedir"]) / "virt" / "homes" / host


def homes(opts: dict[str, Any], host: str) -> dict[str, list[str]]:
    """Return UUID to home hosts for guests in the host's record that were already away from other
    hosts when they left this one."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        homes_by_uuid: dict[str, list[str]] = json.loads(_homes_path(opts, host).read_text("utf-8"))
        return homes_by_uuid
    return {}


def record_homes(
    opts: dict[str, Any], host: str, uuids: Collection[str], drained: Iterable[str]
) -> None:
    """Record the home hosts of guests that are about to leave the host. drained: the other hosts in
    maintenance; records of hosts that accept guests may be out of date."""
    previous, records = (
        homes(opts, host),
        {drained_host: load(opts, drained_host) for drained_host in drained},
    )
    updated = {uuid: home for uuid, home in previous.items() if uuid not in uuids}
    for uuid in uuids:
        home = sorted(drained_host for drained_host, record in records.items() if uuid in record)
        updated |= {uuid: home} if home else {}
    if updated != previous:
        private.write(str(_homes_path(opts, host)), json.dumps(updated, sort_keys=True))
