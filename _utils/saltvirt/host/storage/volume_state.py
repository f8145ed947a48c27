"""Convergence of a volume to its desired state, and its removal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host.connection import libvirt
from saltvirt.host.storage import pools, volume_content, volumes
from saltvirt.states.outcome import StateOutcome
from saltvirt.states.volumes import DesiredVolume, VolumeFacts, changed, created, needs_users

if TYPE_CHECKING:
    from saltvirt.spec.storage import PermissionsSpec


def converge(conn: libvirt.virConnect, desired: DesiredVolume, test: bool = False) -> StateOutcome:
    """Bring the volume to its desired state.

    test: change nothing, only report what would change. In a test, the pool may be missing: another
    state of the same run may define it. Raises OperationFailed if an existing volume needs a change
    that is not possible.
    """
    if test and desired.pool not in pools.names(conn):
        return created(desired, pool_exists=False)
    volume = _find(conn, desired.pool, desired.spec.name)
    if volume is None:
        pools.refuse_unmounted(conn, pools.lookup(conn, desired.pool))
        outcome = created(desired)
        if not test:
            volumes.define(conn, desired.pool, desired.spec)
        return outcome
    outcome = changed(desired, _facts(conn, volume, desired))
    size = outcome.changes.get("size_bytes")
    if size and size["new"] < size["old"]:  # also in a test, and before any change
        volumes.refuse_written(conn, desired.pool, volume)
    elif size:
        volumes.refuse_resized(conn, desired.pool, volume)
    if outcome.changes and not test:
        _carry_out(conn, desired, volume.path(), outcome.changes)
    return outcome


def _find(conn: libvirt.virConnect, pool: str, name: str) -> libvirt.virStorageVol | None:
    """Return the virStorageVol, after a refresh of the pool if libvirt does not know it, or
    None."""
    with contextlib.suppress(errors.NotFound):
        return volumes.lookup(conn, pool, name)
    pools.refresh(pools.lookup(conn, pool))
    with contextlib.suppress(errors.NotFound):
        return volumes.lookup(conn, pool, name)
    return None


def _facts(
    conn: libvirt.virConnect, volume: libvirt.virStorageVol, desired: DesiredVolume
) -> VolumeFacts:
    """Return the current state of the volume. Users are determined only if they matter."""
    volume_xml, kind = volume_content.definition(volume), volume.info()[0]
    permissions = volume_xml.permissions
    facts = VolumeFacts(
        pool_type=pools.read(pools.lookup(conn, desired.pool)).type,
        type=volumes.TYPES[kind] if kind < len(volumes.TYPES) else "unknown",
        format=volume_xml.format,
        backing=(volume_xml.backing_path, volume_xml.backing_format)
        if volume_xml.backing_path
        else None,
        size_bytes=volume_xml.capacity_bytes or 0,
        mode=f"{int(permissions.mode, 8):04o}" if permissions.mode else None,
        owner=permissions.owner,
        group=permissions.group,
        label=permissions.label,
    )
    if not needs_users(desired, facts):
        return facts
    used, keys = volumes.users(conn, volume)
    return replace(facts, users=tuple(used.running(keys)))


def _carry_out(
    conn: libvirt.virConnect,
    desired: DesiredVolume,
    path: str,
    changes: Mapping[str, object],
) -> None:
    spec = desired.spec
    if spec.permissions and {"mode", "owner", "group", "label"} & set(changes):
        _set_permissions(path, spec.name, spec.permissions, changes)
    if "size_bytes" in changes:
        volumes.resize(conn, desired.pool, spec.name, spec.size_bytes, desired.shrink)
    pools.refresh(pools.lookup(conn, desired.pool))


def _set_permissions(
    path: str, name: str, permissions: PermissionsSpec, changed: Mapping[str, object]
) -> None:
    """Set the permissions of the volume's local file; libvirt has no call for it."""
    if "label" in changed:
        raise errors.Unsupported(f"the label of {path} cannot be changed: use chcon")
    try:
        if "owner" in changed or "group" in changed:
            owner, group = (
                -1 if value is None else value for value in (permissions.owner, permissions.group)
            )
            os.chown(path, owner, group)
        if "mode" in changed and permissions.mode:
            os.chmod(path, int(permissions.mode, 8))
    except OSError as exc:
        raise errors.OperationFailed(
            f"cannot set the permissions of volume {name}: {path}: {exc.strerror}"
        ) from exc


def remove(
    conn: libvirt.virConnect, pool: str, name: str, force: bool = False, test: bool = False
) -> StateOutcome:
    """Delete a volume. A volume in use is deleted only with ``force``."""
    outcome = StateOutcome(f"volume {name} in storage pool {pool}", unchanged_text="is not there")
    if str(pool) not in pools.names(conn):
        return outcome
    volume = _find(conn, pool, name)
    if volume is None:
        consequence = f"whether volume {name} is there is not known"
        pools.refuse_unmounted(conn, pools.lookup(conn, pool), consequence)
        return outcome
    if not force:
        volumes.refuse_used(conn, pool, [volume])
    outcome.switch("defined", True, False, "deleted")
    if not test:
        volumes.delete(conn, pool, name, force)
    return outcome
