"""A volume as a state wants it: compared, grown, taken away."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt import errors, units
from saltvirt.host.storage import pool as host_pool
from saltvirt.host.storage import volume as host_volume
from saltvirt.host.storage import volume_content
from saltvirt.states.desired import Outcome

if TYPE_CHECKING:
    import libvirt

    from saltvirt.spec.storage import PermissionsSpec
    from saltvirt.spec.volume import VolumeSpec
    from saltvirt.xml.volume import Volume

# these round a size up to whole extents or cylinders
_ROUNDED = {"logical": 64 << 20, "disk": 16 << 20, "zfs": 1 << 20}
_SECTOR = 512


@dataclass(frozen=True)
class Wish:
    """The pool's name, the VolumeSpec, and whether the volume may become smaller."""

    pool: str
    spec: VolumeSpec
    shrink: bool = False


def converge(conn: libvirt.virConnect, wish: Wish, test: bool = False) -> Outcome:
    """Makes it so; the Outcome. test: change nothing, only say what would change.

    Raises OperationFailed for what cannot be changed in a volume that is there.
    """
    outcome = Outcome(f"volume {wish.spec.name} in storage pool {wish.pool}")
    volume = _find(conn, wish.pool, wish.spec.name)
    if volume is None:
        outcome.switch("defined", False, True, "defined")
        if not test:
            host_volume.define(conn, wish.pool, wish.spec)
        return outcome
    there = volume_content.definition(volume)
    _refuse_other(wish, there, volume.info()[0])
    users = _Users(conn, volume)
    _size(conn, wish, there, outcome, users)
    _permissions(wish, there, outcome, users)
    if outcome.changes and not test:
        _carry_out(conn, wish, there, outcome)
    return outcome


def _find(conn: libvirt.virConnect, pool: str, name: str) -> libvirt.virStorageVol | None:
    """The virStorageVol, looked for anew where libvirt does not know it; None without."""
    with contextlib.suppress(errors.NotFound):
        return host_volume.lookup(conn, pool, name)
    host_pool.refresh(host_pool.lookup(conn, pool))
    with contextlib.suppress(errors.NotFound):
        return host_volume.lookup(conn, pool, name)
    return None


class _Users:
    """Who uses a volume, asked once and only when it matters."""

    def __init__(self, conn: libvirt.virConnect, volume: libvirt.virStorageVol) -> None:
        self._conn, self._volume = conn, volume
        self._running: list[str] | None = None

    @property
    def running(self) -> list[str]:
        if self._running is None:
            used, own = host_volume.users(self._conn, self._volume)
            self._running = used.running(own)
        return self._running


def _refuse_other(wish: Wish, there: Volume, kind: int) -> None:
    """What a volume is made as stays so."""
    spec, found = wish.spec, []
    words = host_volume.TYPES
    actual = words[kind] if kind < len(words) else "unknown"
    if spec.type and spec.type != actual:
        found.append(f"type {actual}, not {spec.type}")
    if spec.format and there.format and spec.format != there.format:
        found.append(f"format {there.format}, not {spec.format}")
    wanted = (spec.backing_store.path, spec.backing_store.format) if spec.backing_store else None
    has = (there.backing_path, there.backing_format) if there.backing_path else None
    if wanted != has:
        found.append(f"backing store {_backing(has)}, not {_backing(wanted)}")
    if found:
        raise errors.OperationFailed(
            f"volume {spec.name} is in storage pool {wish.pool} with another "
            f"{' and '.join(found)}; this cannot be changed in a volume that is there"
        )


def _backing(pair: tuple[str | None, str | None] | None) -> str:
    return f"{pair[0]} ({pair[1]})" if pair else "none"


def _size(
    conn: libvirt.virConnect, wish: Wish, there: Volume, outcome: Outcome, users: _Users
) -> None:
    wanted, has = wish.spec.size_bytes, there.capacity_bytes or 0
    kind = host_pool.read(host_pool.lookup(conn, wish.pool)).type
    rounded = _ROUNDED.get(kind or "", _SECTOR)
    if wanted <= has < wanted + rounded:
        return
    if wanted < has and not wish.shrink:
        raise errors.OperationFailed(
            f"volume {wish.spec.name} in storage pool {wish.pool} has {units.human_bytes(has)}, "
            f"more than {units.human_bytes(wanted)}; shrink: True cuts it off"
        )
    if users.running:
        raise errors.OperationFailed(
            f"volume {wish.spec.name} in storage pool {wish.pool} cannot become "
            f"{units.human_bytes(wanted)} as it is open in {', '.join(users.running)}; "
            "virt.resize_disk grows the disk of a running guest"
        )
    outcome.switch("size_bytes", has, wanted, "resized")


def _permissions(wish: Wish, there: Volume, outcome: Outcome, users: _Users) -> None:
    """While a guest runs, libvirt lends it the file: owner and group are not compared then."""
    given, has = wish.spec.permissions, there.permissions
    if not given:
        return
    mode = f"{int(has.mode, 8):04o}" if has.mode else None
    differs: list[tuple[str, object, object]] = [
        ("mode", mode, given.mode),
        ("label", has.label, given.label),
    ]
    if (given.owner, given.group) != (None, None) and not users.running:
        differs += [("owner", has.owner, given.owner), ("group", has.group, given.group)]
    for name, old, new in differs:
        if new is not None:
            outcome.switch(name, old, new, "its permissions changed")


def _carry_out(conn: libvirt.virConnect, wish: Wish, there: Volume, outcome: Outcome) -> None:
    changed, name = outcome.changes, wish.spec.name
    given, path = wish.spec.permissions, there.path
    if given and path and {"mode", "owner", "group", "label"} & set(changed):
        _set_permissions(path, name, given, changed)
    if "size_bytes" in changed:
        host_volume.resize(conn, wish.pool, name, wish.spec.size_bytes, wish.shrink)
    host_pool.refresh(host_pool.lookup(conn, wish.pool))


def _set_permissions(
    path: str, name: str, given: PermissionsSpec, changed: Mapping[str, object]
) -> None:
    """libvirt has no call for it: on the volume's file, which must be on this host."""
    if "label" in changed:
        raise errors.Unsupported(f"the label of {path} cannot be changed: use chcon")
    try:
        if "owner" in changed or "group" in changed:
            owner, group = (-1 if value is None else value for value in (given.owner, given.group))
            os.chown(path, owner, group)
        if "mode" in changed and given.mode:
            os.chmod(path, int(given.mode, 8))
    except OSError as exc:
        raise errors.OperationFailed(
            f"cannot set the permissions of volume {name}: {path}: {exc.strerror}"
        ) from exc


def absent(
    conn: libvirt.virConnect, pool: str, name: str, force: bool = False, test: bool = False
) -> Outcome:
    """Deletes a volume; the Outcome. One that a guest or another volume uses only with force."""
    outcome = Outcome(f"volume {name} in storage pool {pool}", quiet="is not there")
    if str(pool) not in host_pool.names(conn):
        return outcome
    volume = _find(conn, pool, name)
    if volume is None:
        return outcome
    if not force:
        host_volume.refuse_used(conn, pool, [volume])
    outcome.switch("defined", True, False, "deleted")
    if not test:
        host_volume.delete(conn, pool, name, force)
    return outcome
