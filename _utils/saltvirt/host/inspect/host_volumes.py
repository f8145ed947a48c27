"""The volumes in the storage pools of a host, with the guests that use them."""

from __future__ import annotations

from typing import Any

from saltvirt.answers.inspection import PoolVolumes, VolumeSummary
from saltvirt.host.connection import libvirt
from saltvirt.host.storage import volumes


def read(conn: libvirt.virConnect) -> dict[str, PoolVolumes]:
    """Return the volumes of each running pool that has volumes, or could not be read."""
    return {pool: _of_pool(infos) for pool, infos in volumes.infos(conn).items()}


def _of_pool(infos: dict[str, Any]) -> PoolVolumes:
    error = infos.get("error")
    if error is not None and not isinstance(error, dict):
        return PoolVolumes(error=str(error))
    return PoolVolumes({name: _summary(info) for name, info in sorted(infos.items())})


def _summary(info: dict[str, Any]) -> VolumeSummary:
    guests = tuple(info.get("used_by", ()))
    if "capacity" not in info:
        return VolumeSummary(used_by=guests, error=str(info.get("error")))
    return VolumeSummary(
        info["type"], info["format"], info["path"], info["capacity"], info["allocation"], guests
    )
