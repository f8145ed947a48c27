"""Convergence of a storage pool to its desired state, and its removal."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lookup
from saltvirt.host.storage import identity, pools, secret, usage, volumes
from saltvirt.revert import UndoStack
from saltvirt.rights import confidential
from saltvirt.states.outcome import StateOutcome
from saltvirt.states.pools import DesiredPool, PoolFacts, PoolStep, created

if TYPE_CHECKING:
    from saltvirt.diff.change import Change
    from saltvirt.spec.pool import PoolSpec

# types whose resources libvirt can build, and delete
_BUILT = ("dir", "fs", "netfs", "logical", "disk", "vstorage")
_DELETED = ("dir", "fs", "netfs", "logical", "vstorage")
# types whose volumes are created and deleted elsewhere
_FOREIGN = ("iscsi", "iscsi-direct", "mpath", "scsi")
# system folders with everything below them, and folders that contain others' folders
_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin"),
    *("/sys", "/usr", "/var/lib/salt-virt", "/var/lib/libvirt/qemu", "/var/lib/libvirt/swtpm"),
    *("/var/log", "/var/cache/salt"),
)
_SYSTEM_ROOTS = (
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/srv",
    "/tmp",
    "/var",
    "/var/lib",
    "/var/lib/libvirt",
)
_AUTH = ("source/auth_uuid", "source/auth_usage")


def converge(conn: libvirt.virConnect, desired: DesiredPool, test: bool = False) -> StateOutcome:
    """Bring the pool to its desired state.

    test: change nothing, only report what would change.
    """
    if desired.name not in pools.names(conn):
        outcome = created(desired, conn.getHostname())
        if desired.spec and not test:
            _create(conn, desired, desired.spec)
        return outcome
    pool = pools.lookup(conn, desired.name)
    step = _step(conn, pool, desired)
    outcome = step.outcome()
    if "path" in outcome.changes:
        outcome.notes += _path_notes(conn, pool, outcome.changes["path"])
    if outcome.changes and not test:
        with translated(f"change storage pool {desired.name}"):
            _Change(conn, pool, step, outcome.changes).carry_out()
    return outcome


def _path_notes(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, change: dict[str, Any]
) -> list[str]:
    """Return warnings about guests whose volumes remain in the pool's previous folder."""
    guests = volumes.users_of_pool(conn, pool)[0]
    if not guests:
        return []
    return [
        f"{change['old']} contains volumes of {confidential.sensitive_names(guests)}: "
        f"these guests start only if {change['new']} contains the volumes too"
    ]


def _create(conn: libvirt.virConnect, desired: DesiredPool, spec: PoolSpec) -> None:
    build = spec.type in _BUILT or bool(spec.type == "zfs" and spec.source_devices)
    running = bool(desired.running or desired.transient)
    pools.define(conn, spec, pools.PoolOptions(running, desired.transient, build))
    if desired.autostart and not desired.transient:
        pools.set_autostart(pools.lookup(conn, desired.name), True)


def _step(conn: libvirt.virConnect, pool: libvirt.virStoragePool, desired: DesiredPool) -> PoolStep:
    """Compare the pool with its desired state. Users are determined only if the pool must be
    stopped."""
    spec, persistent = desired.spec, bool(pool.isPersistent())
    difference = pools.compare(conn, pool, spec) if spec else None
    facts = PoolFacts(
        active=bool(pool.isActive()),
        persistent=persistent,
        autostart=bool(persistent and pool.autostart()),
        redefined=_without_auth(spec, difference.redefined) if difference else [],
        live_changes=_without_auth(spec, difference.running_changes) if difference else [],
        new_password=_password_differs(conn, pool, spec),
    )
    step = PoolStep(desired, facts)
    if not step.stops:
        return step
    users = tuple(volumes.users_of_pool(conn, pool)[1])
    return PoolStep(desired, replace(facts, users=users))


def _without_auth(spec: PoolSpec | None, changes: list[Change]) -> list[Change]:
    """Remove changes of the secret's identity if the secret is created from a password."""
    if not spec or not secret.has_password(spec):
        return changes
    return [change for change in changes if change.path not in _AUTH]


def _password_differs(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, spec: PoolSpec | None
) -> bool:
    if not spec or not secret.has_password(spec):
        return False
    uuid = secret.uuid_for_pool(conn, spec)
    configured_uuid = pools.configured_pool(pool).source.auth_uuid
    return uuid is None or uuid != configured_uuid or not secret.is_stored(conn, spec)


class _Change:
    """Applies a PoolStep.

    changes: the changes of its Outcome.
    """

    def __init__(
        self,
        conn: libvirt.virConnect,
        pool: libvirt.virStoragePool,
        step: PoolStep,
        changes: dict[str, Any],
    ) -> None:
        self.conn, self.pool, self.step, self.changes = conn, pool, step, changes

    def carry_out(self) -> None:
        """Apply the changes. On failure, a pool that was active is active again, unchanged."""
        changes, step, spec = self.changes, self.step, self.step.desired.spec
        with UndoStack() as undo:
            if spec and step.recreates:
                self._make_transient(spec, undo)
                undo.success()
                return
            if step.restarts:
                undo.push("start the pool again", self._start_again)
            facts = step.facts
            if spec and (facts.redefined or facts.new_password or "persistent" in changes):
                self._define(spec, undo)
            if "autostart" in changes:
                pools.set_autostart(self.pool, changes["autostart"]["new"])
            if step.restarts:
                pools.stop(self.pool)
            start = step.restarts or "active" in changes
            if start or facts.redefined:
                self._build_and_start(start)
            undo.success()

    def _definitions(self, spec: PoolSpec, undo: UndoStack) -> tuple[str, str]:
        """Return (desired definition, current definition) as text."""
        uuid = secret.store_for_pool(self.conn, spec, undo)
        desired_pool = pools.compare(self.conn, self.pool, spec, uuid).desired
        return desired_pool.tostring(), pools.configured_pool(self.pool).tostring()

    def _define(self, spec: PoolSpec, undo: UndoStack) -> None:
        desired_xml, old_xml = self._definitions(spec, undo)
        self.conn.storagePoolDefineXML(desired_xml, 0)
        if self.step.facts.persistent:
            undo.push("restore the pool", self.conn.storagePoolDefineXML, old_xml, 0)

    def _make_transient(self, spec: PoolSpec, undo: UndoStack) -> None:
        """Recreate a transient pool, which disappears when it is stopped."""
        desired_xml, old_xml = self._definitions(spec, undo)
        step = self.step
        if step.restarts:
            self.pool.destroy()
            undo.push("recreate the pool", self.conn.storagePoolCreateXML, old_xml, 0)
        if step.facts.persistent:
            self.pool.undefine()
            undo.push("restore the pool", self.conn.storagePoolDefineXML, old_xml, 0)
        if step.restarts or not step.facts.active:
            build = spec.type in _BUILT
            flags = libvirt.VIR_STORAGE_POOL_CREATE_WITH_BUILD if build else 0
            self.conn.storagePoolCreateXML(desired_xml, flags)

    def _build_and_start(self, start: bool) -> None:
        if self.pool.isActive():
            return
        if pools.read(self.pool).type in _BUILT:
            pools.build(self.conn, self.pool)
        if start:
            pools.start(self.pool)

    def _start_again(self) -> None:
        if not self.pool.isActive():
            self.pool.create(0)


def remove(
    conn: libvirt.virConnect,
    name: str,
    purge: bool = False,
    force: bool = False,
    test: bool = False,
) -> StateOutcome:
    """Stop and undefine a pool; with ``purge`` also delete its volumes and resources.

    Raises InvalidInput, unless ``force`` is set, if running guests use its volumes, with ``purge``
    also for stopped guests and if other hosts may use its resources.
    """
    outcome = StateOutcome(f"storage pool {name}", unchanged_text="is not there")
    if str(name) not in pools.names(conn):
        return outcome
    pool = pools.lookup(conn, name)
    # libvirt starts the pool even if its file system is not mounted
    if purge and pools.read(pool).type == "dir":
        pools.refuse_unmounted(conn, pool, "its volumes cannot be deleted")
    _refuse_users(conn, pool, purge, force)
    # in this order: an inactive transient pool no longer exists
    kind, persistent, active = pools.read(pool).type, pool.isPersistent(), pool.isActive()
    to_delete = _to_delete(conn, pool, kind, outcome) if purge else []
    if to_delete:
        _refuse_needed(conn, pool, to_delete, force)
        outcome.changes["deleted_volumes"] = to_delete
    outcome.changes |= {"stopped": True} if active else {}
    if purge and _deletes_resources(conn, pool, kind, outcome):
        if not force:
            volumes.refuse_shared(conn, pool)
        outcome.changes["deleted"] = True
    outcome.changes["undefined"] = True
    outcome.actions.append("purged" if purge else "removed; its content is not deleted")
    if stopped_guests := lookup.off_with_source(conn, "disk", "pool", str(name)):
        names = confidential.sensitive_names(stopped_guests)
        outcome.notes.append(
            f"{names} cannot start without it: each has a disk that is defined as a volume of it"
        )
    if not test:
        with translated(f"delete storage pool {name}"):
            volumes.delete_all(conn, name, to_delete, force)
            _delete(conn, pool, outcome.changes, bool(persistent))
    return outcome


def _refuse_users(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, purge: bool, force: bool
) -> None:
    all_users, running = volumes.users_of_pool(conn, pool)
    users = all_users if purge else running
    if users and not force:
        raise errors.InvalidInput(
            f"storage pool {pool.name()} on {conn.getHostname()} has volumes of "
            f"{', '.join(users)}; force: True {'deletes' if purge else 'removes'} it nevertheless"
        )


def _refuse_needed(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, to_delete: list[str], force: bool
) -> None:
    """Raise InvalidInput if something other than a guest uses, or may use, a volume."""
    _refuse_nested(conn, pool)
    if not force:
        volume_objects = [pool.storageVolLookupByName(volume_name) for volume_name in to_delete]
        volumes.refuse_used(conn, pool.name(), volume_objects)


def _refuse_nested(conn: libvirt.virConnect, pool: libvirt.virStoragePool) -> None:
    """Raise InvalidInput if the pool's files also belong to another pool."""
    target = pools.read(pool).path
    if not target or not connection.is_local(conn):
        return
    for other_pool in conn.listAllStoragePools():
        path = pools.read(other_pool).path
        if other_pool.name() == pool.name() or not path:
            continue
        relation = None
        if identity.keys_of(path) & identity.keys_of(target):
            relation = "uses the same files"
        elif identity.real(path).startswith(f"{identity.real(target)}/"):
            relation = "is inside it"
        if relation:
            raise errors.InvalidInput(
                f"cannot purge storage pool {pool.name()} on {conn.getHostname()}: storage pool "
                f"{other_pool.name()} {relation}; undefine that pool first, if its content may be "
                "deleted"
            )


def _is_gone(pool: libvirt.virStoragePool, kind: str | None) -> bool:
    """Return whether the folder of a stopped pool is missing, as after an interrupted deletion."""
    target = pools.read(pool).path
    if kind not in usage.FILES or not target:
        return False
    return not usage.is_there(pool.connect(), target)


def _deletes_resources(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, kind: str | None, outcome: StateOutcome
) -> bool:
    """Return whether the pool's resources are deleted as well."""
    if not pool.isActive() and _is_gone(pool, kind):
        return False
    target = pools.read(pool).path
    if kind in usage.FILES and target and connection.is_local(conn) and os.path.islink(target):
        outcome.notes.append(f"Its folder {target} is a symbolic link and is not deleted")
        return False
    if kind == "zfs":
        zpool = pools.read(pool).source.name or pool.name()
        outcome.notes.append(
            "The ZFS pool itself is not deleted, because it may contain file systems, "
            f"which are not volumes: zpool destroy {zpool} deletes everything"
        )
    return kind in _DELETED


def _to_delete(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, kind: str | None, outcome: StateOutcome
) -> list[str]:
    if kind in _FOREIGN:
        outcome.notes.append(f"Volumes of a pool of type {kind} cannot be deleted")
        return []
    if not pool.isActive() and _is_gone(pool, kind):
        return []
    if not pool.isActive():
        raise errors.InvalidInput(
            f"storage pool {pool.name()} on {conn.getHostname()} is not active, so its "
            "volumes are unknown; virt.pool_running starts it"
        )
    pools.refresh(pool)
    if kind in usage.FILES:
        _refuse_folders(pool)
    return pools.volume_names(pool)


def _refuse_folders(pool: libvirt.virStoragePool) -> None:
    """Raise InvalidInput for a system folder, or if a folder among the volumes is not empty.

    libvirt lists all files of the folder as volumes. It does not delete folders that are not empty,
    and would fail after deleting other volumes.
    """
    conn, target = pool.connect(), pools.read(pool).path
    prefix = f"cannot purge storage pool {pool.name()} on {conn.getHostname()}"
    if not target or not connection.is_local(conn):
        return
    if _is_system_path(identity.real(target)):
        raise errors.InvalidInput(f"{prefix}: {target} is a system folder")
    nonempty = []
    for volume in pool.listAllVolumes():
        path = volume.path()
        if volume.info()[0] == libvirt.VIR_STORAGE_VOL_DIR and os.listdir(path):
            nonempty.append(path)
    if nonempty:
        raise errors.InvalidInput(
            f"{prefix}: libvirt deletes only empty folders, and these are not: "
            f"{', '.join(sorted(nonempty))}; move them elsewhere, or delete their content"
        )


def _is_system_path(path: str) -> bool:
    """Return whether a folder contains files of the system or of libvirt."""
    is_below = any(path == folder or path.startswith(f"{folder}/") for folder in _SYSTEM)
    return is_below or path in _SYSTEM_ROOTS or path == "/"


def _delete(
    conn: libvirt.virConnect,
    pool: libvirt.virStoragePool,
    changes: dict[str, Any],
    persistent: bool,
) -> None:
    definition = pools.configured_pool(pool)
    with UndoStack() as undo:
        if changes.get("stopped"):
            if persistent:
                undo.push("start the pool again", pool.create, 0)
            pools.stop(pool)
        if changes.get("deleted"):
            if not persistent:  # it disappeared when it was stopped, and libvirt needs a definition
                pool = conn.storagePoolDefineXML(definition.tostring())
                undo.push("undefine the pool again", pool.undefine)
            pools.delete(pool)
        undo.success()
    if persistent or changes.get("deleted"):
        pools.undefine(conn, pool)
    else:
        secret.forget_for_pool(conn, definition)
