"""Which guests this master moved away from a host in maintenance: written down before they leave.

The host keeps their names, too, but what it names decides nothing: only a guest that this master
moved away from it is brought back to it. A guest is known by its UUID: its name may change, and
another guest may get that name.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from saltvirt.fleet import private

# UUID of a guest to the name it had when it left; of an earlier version's record, name to name
Guests = dict[str, str]


def _folder(opts: dict[str, Any]) -> Path:
    return Path(opts["cachedir"]) / "virt" / "away"


def _path(opts: dict[str, Any], host: str) -> Path:
    return _folder(opts) / host


def load(opts: dict[str, Any], host: str) -> Guests:
    """The guests that are away from the host."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        data = json.loads(_path(opts, host).read_text(encoding="utf-8"))
        if isinstance(data, list):  # as earlier versions wrote it
            data = {name: name for name in data}
        return {str(uuid): str(name) for uuid, name in data.items()}
    return {}


def store(opts: dict[str, Any], host: str, guests: Mapping[str, str] | None) -> None:
    """These are away now, and no others."""
    if guests:
        private.write(str(_path(opts, host)), json.dumps(dict(guests), sort_keys=True))
    else:
        _path(opts, host).unlink(missing_ok=True)
        _homes_path(opts, host).unlink(missing_ok=True)


def _homes_path(opts: dict[str, Any], host: str) -> Path:
    return Path(opts["cachedir"]) / "virt" / "homes" / host


def homes(opts: dict[str, Any], host: str) -> dict[str, list[str]]:
    """UUIDs of guests in the host's record that were away from other hosts already when they left
    this one, to those hosts."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        homes_by_uuid: dict[str, list[str]] = json.loads(_homes_path(opts, host).read_text("utf-8"))
        return homes_by_uuid
    return {}


def record_homes(
    opts: dict[str, Any], host: str, uuids: Collection[str], drained: Iterable[str]
) -> None:
    """Writes down the homes of guests that are about to leave the host. drained: the other hosts
    that take no guests now; what is recorded of a host that takes guests may be out of date."""
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


def forget(opts: dict[str, Any], name: str) -> None:
    """The guest of this name is gone: where an earlier version recorded the name alone, another
    guest of that name is brought back to no host."""
    for path in _folder(opts).glob("[!.]*"):
        guests = load(opts, path.name)
        if guests.pop(name, None):
            store(opts, path.name, guests)
