"""A storage pool as a state wants it: compared, changed, taken away."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.storage import identity, secret, usage
from saltvirt.host.storage import pool as host_pool
from saltvirt.host.storage import volume as host_volume
from saltvirt.revert import Revert
from saltvirt.states.desired import Outcome, by_path

if TYPE_CHECKING:
    from saltvirt.diff.change import Change
    from saltvirt.spec.pool import PoolSpec

# libvirt can make what these are made of, and delete it
_BUILT = ("dir", "fs", "netfs", "logical", "disk", "vstorage")
_DELETED = ("dir", "fs", "netfs", "logical", "vstorage", "zfs")
# their volumes are made and deleted elsewhere
_FOREIGN = ("iscsi", "iscsi-direct", "mpath", "scsi")
_AUTH = ("source/auth_uuid", "source/auth_usage")
_HIDDEN = "(hidden)"


@dataclass(frozen=True)
class Wish:
    """What a pool shall be.

    spec: its PoolSpec; None leaves its definition as it is. running: None leaves it as it is.
    restart: also when running guests use its volumes.
    """

    name: str
    spec: PoolSpec | None
    running: bool | None
    autostart: bool
    transient: bool = False
    restart: bool = False


def converge(conn: libvirt.virConnect, wish: Wish, test: bool = False) -> Outcome:
    """Makes it so; the Outcome. test: change nothing, only say what would change."""
    outcome = Outcome(f"storage pool {wish.name}")
    if wish.name not in host_pool.names(conn):
        _create(conn, wish, outcome, test)
        return outcome
    step = _Step(conn, wish, outcome)
    step.plan()
    if outcome.changes and not test:
        with translated(f"change storage pool {wish.name}"):
            step.carry_out()
    return outcome


def _create(conn: libvirt.virConnect, wish: Wish, outcome: Outcome, test: bool) -> None:
    if wish.spec is None:
        raise errors.InvalidInput(
            f"there is no storage pool {wish.name} on {conn.getHostname()}: to make it, "
            "ptype is needed"
        )
    running = bool(wish.running or wish.transient)
    outcome.switch("defined", False, True, "defined")
    autostart = bool(wish.autostart and not wish.transient)
    outcome.switch("autostart", False, autostart, "marked for autostart")
    outcome.switch("active", False, running, "started")
    if not test:
        build = wish.spec.type in _BUILT or bool(
            wish.spec.type == "zfs" and wish.spec.source_devices
        )
        host_pool.define(conn, wish.spec, host_pool.Making(running, wish.transient, build))
        if autostart:
            host_pool.set_autostart(host_pool.lookup(conn, wish.name), True)


class _Step:
    """From what a pool is to what it shall be."""

    def __init__(self, conn: libvirt.virConnect, wish: Wish, outcome: Outcome) -> None:
        self.conn, self.wish, self.outcome = conn, wish, outcome
        self.pool = host_pool.lookup(conn, wish.name)
        self.active, self.persistent = bool(self.pool.isActive()), bool(self.pool.isPersistent())
        self.redefined: list[Change] = []
        now: list[Change] = []
        if wish.spec:
            found = host_pool.compare(conn, self.pool, wish.spec)
            self.redefined, now = self._shown(found.redefined), self._shown(found.now)
        self.now = now
        # libvirt forgets the definition of a pool only when it is stopped
        self.forgets = bool(wish.spec and wish.transient and self.persistent)
        stops = bool(now or (self.forgets and self.active))
        self.users = host_volume.users_of_pool(conn, self.pool)[1] if stops else []
        self.restarts = bool(
            stops and (wish.running or wish.transient) and (wish.restart or not self.users)
        )
        self.new_password = self._password_differs()

    def _shown(self, changes: list[Change]) -> list[Change]:
        """Without the secret's identity, which is ours when we make it of a password."""
        if not self.wish.spec or not secret.has_password(self.wish.spec):
            return changes
        return [change for change in changes if change.path not in _AUTH]

    def _password_differs(self) -> bool:
        spec = self.wish.spec
        if not spec or not secret.has_password(spec):
            return False
        uuid = secret.uuid_for_pool(self.conn, spec)
        named = host_pool.configured_pool(self.pool).source.auth_uuid
        return uuid is None or uuid != named or not secret.is_stored(self.conn, spec)

    def plan(self) -> None:
        """Fills the Outcome."""
        outcome = self.outcome
        outcome.changes = by_path(self.now) if self.restarts else {}
        outcome.changes.update(by_path(self.redefined))
        if self.new_password:
            outcome.changes["password"] = {"old": _HIDDEN, "new": _HIDDEN}
        if outcome.changes:
            outcome.done.append("updated")
        self._plan_life()
        if self.restarts:
            outcome.done.append("restarted")
        elif self.now or (self.forgets and self.active):
            self._waits()

    def _plan_life(self) -> None:
        wish, outcome = self.wish, self.outcome
        if wish.spec:
            word = "made transient" if wish.transient else "defined"
            outcome.switch("persistent", self.persistent, not wish.transient, word)
        stays = outcome.changes.get("persistent", {}).get("new", self.persistent)
        if stays:
            before = bool(self.persistent and self.pool.autostart())
            word = "marked for autostart" if wish.autostart else "no longer started with the host"
            outcome.switch("autostart", before, bool(wish.autostart), word)
        if wish.running or not stays:
            outcome.switch("active", self.active, True, "started")

    def _waits(self) -> None:
        by = f", as {', '.join(self.users)} has volumes of it open" if self.users else ""
        if self.wish.transient:
            raise errors.InvalidInput(
                f"transient storage pool {self.wish.name} cannot be changed while it runs{by}; "
                "restart: True stops it and makes it again"
            )
        text = f"What was changed takes effect when the pool is started again{by}"
        self.outcome.notes.append(
            text + (" (restart: True does it now)" if self.wish.running else "")
        )

    def carry_out(self) -> None:
        """Changes what the plan says. When it fails, a pool that ran runs with what it had."""
        changed, pool, spec = self.outcome.changes, self.pool, self.wish.spec
        with Revert() as undo:
            if spec and (self.forgets or (self.wish.transient and self.restarts)):
                self._make_transient(spec, undo)
                undo.success()
                return
            if self.restarts:
                undo.push("start the pool again", self._start_again)
            if spec and (self.redefined or self.new_password or "persistent" in changed):
                self._define(spec, undo)
            if "autostart" in changed:
                host_pool.set_autostart(pool, self.wish.autostart)
            if self.restarts:
                host_pool.stop(pool)
            if self.restarts or self.redefined or "active" in changed:
                self._build_and_start(self.restarts or "active" in changed)
            undo.success()

    def _wanted(self, spec: PoolSpec, undo: Revert) -> tuple[str, str]:
        """(the definition that it shall have, the one that it has), as text."""
        uuid = secret.store_for_pool(self.conn, spec, undo)
        wanted = host_pool.compare(self.conn, self.pool, spec, uuid).wanted
        return wanted.tostring(), host_pool.configured_pool(self.pool).tostring()

    def _define(self, spec: PoolSpec, undo: Revert) -> None:
        wanted, old = self._wanted(spec, undo)
        self.conn.storagePoolDefineXML(wanted, 0)
        if self.persistent:
            undo.push("put the pool back", self.conn.storagePoolDefineXML, old, 0)

    def _make_transient(self, spec: PoolSpec, undo: Revert) -> None:
        """A transient pool is gone when it is stopped: it is made anew."""
        wanted, old = self._wanted(spec, undo)
        if self.restarts:
            self.pool.destroy()
            undo.push("make the pool again", self.conn.storagePoolCreateXML, old, 0)
        if self.persistent:
            self.pool.undefine()
            undo.push("put the pool back", self.conn.storagePoolDefineXML, old, 0)
        if self.restarts or not self.active:
            build = spec.type in _BUILT
            flags = libvirt.VIR_STORAGE_POOL_CREATE_WITH_BUILD if build else 0
            self.conn.storagePoolCreateXML(wanted, flags)

    def _build_and_start(self, start: bool) -> None:
        if self.pool.isActive():
            return
        if host_pool.read(self.pool).type in _BUILT:
            host_pool.build(self.conn, self.pool)
        if start:
            host_pool.start(self.pool)

    def _start_again(self) -> None:
        if not self.pool.isActive():
            self.pool.create(0)


def deleted(
    conn: libvirt.virConnect,
    name: str,
    purge: bool = False,
    force: bool = False,
    test: bool = False,
) -> Outcome:
    """Stops and undefines a pool; with ``purge`` its volumes and what it is made of go, too.

    Raises InvalidInput when guests have volumes of it, unless ``force``: those that run, with
    ``purge`` any.
    """
    outcome = Outcome(f"storage pool {name}", quiet="is not there")
    if str(name) not in host_pool.names(conn):
        return outcome
    pool = host_pool.lookup(conn, name)
    _refuse_users(conn, pool, purge, force)
    kind, active, persistent = host_pool.read(pool).type, pool.isActive(), pool.isPersistent()
    volumes = _to_delete(conn, pool, kind, outcome) if purge else []
    if volumes:
        _refuse_needed(conn, pool, volumes, force)
        outcome.changes["deleted_volumes"] = volumes
    outcome.changes |= {"stopped": True} if active else {}
    outcome.changes |= {"deleted": True} if purge and _goes(conn, pool, kind, outcome) else {}
    outcome.changes["undefined"] = True
    outcome.done.append("purged" if purge else "removed, what it holds stays")
    if not test:
        with translated(f"delete storage pool {name}"):
            host_volume.delete_all(conn, name, volumes, force)
            _delete(conn, pool, outcome.changes, bool(persistent))
    return outcome


def _refuse_users(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, purge: bool, force: bool
) -> None:
    everyone, running = host_volume.users_of_pool(conn, pool)
    users = everyone if purge else running
    if users and not force:
        raise errors.InvalidInput(
            f"storage pool {pool.name()} on {conn.getHostname()} has volumes of "
            f"{', '.join(users)}; force: True {'deletes' if purge else 'removes'} it all the same"
        )


def _refuse_needed(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, volumes: list[str], force: bool
) -> None:
    """Refuses what else than a guest needs a volume, or may."""
    _refuse_nested(conn, pool)
    if not force:
        found = [pool.storageVolLookupByName(volume) for volume in volumes]
        host_volume.refuse_used(conn, pool.name(), found)


def _refuse_nested(conn: libvirt.virConnect, pool: libvirt.virStoragePool) -> None:
    """Raises InvalidInput for a pool whose files are those of another pool, too."""
    target = host_pool.read(pool).path
    if not target or not connection.is_local(conn):
        return
    for other in conn.listAllStoragePools():
        path = host_pool.read(other).path
        if other.name() == pool.name() or not path:
            continue
        how = None
        if identity.of(path) & identity.of(target):
            how = "has the same files"
        elif identity.real(path).startswith(f"{identity.real(target)}/"):
            how = "is in it"
        if how:
            raise errors.InvalidInput(
                f"storage pool {pool.name()} on {conn.getHostname()} is not purged: storage pool "
                f"{other.name()} {how}; undefine that one first, if what it has may go"
            )


def _is_gone(pool: libvirt.virStoragePool, kind: str | None) -> bool:
    """Whether the folder of a stopped pool is not there, as when it was being deleted."""
    target = host_pool.read(pool).path
    if kind not in usage.FILES or not target:
        return False
    return not usage.is_there(pool.connect(), target)


def _goes(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, kind: str | None, outcome: Outcome
) -> bool:
    """Whether what the pool is made of is deleted, too."""
    if not pool.isActive() and _is_gone(pool, kind):
        return False
    target = host_pool.read(pool).path
    if kind in usage.FILES and target and connection.is_local(conn) and os.path.islink(target):
        outcome.notes.append(f"Its folder {target} is a symbolic link, which stays")
        return False
    return kind in _DELETED


def _to_delete(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, kind: str | None, outcome: Outcome
) -> list[str]:
    if kind in _FOREIGN:
        outcome.notes.append(f"Volumes of a pool of type {kind} cannot be deleted")
        return []
    if not pool.isActive() and _is_gone(pool, kind):
        return []
    if not pool.isActive():
        raise errors.InvalidInput(
            f"storage pool {pool.name()} on {conn.getHostname()} does not run, so its volumes are "
            "not known; virt.pool_running starts it"
        )
    host_pool.refresh(pool)
    return host_pool.volume_names(pool)


def _delete(
    conn: libvirt.virConnect,
    pool: libvirt.virStoragePool,
    changes: dict[str, Any],
    persistent: bool,
) -> None:
    with Revert() as undo:
        if changes.get("stopped"):
            if persistent:
                undo.push("start the pool again", pool.create, 0)
            definition = host_pool.configured_pool(pool)
            host_pool.stop(pool)
        if changes.get("deleted"):
            host_pool.delete(pool)
        undo.success()
    if persistent:
        host_pool.undefine(conn, pool)
    else:
        secret.forget_for_pool(conn, definition)
