"""Differences between a desired and an actual pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.design.plain_data import plain
from saltvirt.diff.change import Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from saltvirt.xml.storage.pool import Pool

_IGNORED = ("uuid", "capacity_bytes", "allocation_bytes", "available_bytes", "cow")
# libvirt's defaults
_FORMAT = {"fs": "auto", "netfs": "auto", "logical": "lvm2", "disk": "unknown"}

# the keys from the top of nested dictionaries to a value
Path = tuple[str, ...]


def changes(desired: Pool, actual: Pool) -> list[Change]:
    """The list of Change from ``actual`` to ``desired``, both xml.pool.Pool. None of them is
    live."""
    old, new = _normal(actual), _normal(desired)
    for path in (*(("permissions", n) for n in ("mode", "owner", "group", "label")), ("path",)):
        if path not in new:  # not given: libvirt's choice is kept
            old.pop(path, None)
    return [
        Change("pool", "/".join(path), old.get(path), new.get(path))
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path)
    ]


def _normal(pool: Pool) -> dict[Path, Any]:
    data = plain(pool, skip=_IGNORED)
    source = data.setdefault("source", {})
    if pool.type in _FORMAT:
        source.setdefault("format", _FORMAT[pool.type])
    if pool.type in ("logical", "zfs"):
        source.setdefault("name", pool.name)
    if "path" in data:
        data["path"] = data["path"].rstrip("/") or "/"
    permissions = data.get("permissions", {})
    if "mode" in permissions:
        permissions["mode"] = f"{int(permissions['mode'], 8):04o}"
    return dict(_leaves(data))


def _leaves(data: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value
