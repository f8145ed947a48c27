"""Storage pools of one host."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict
from xml.etree import ElementTree

import saltvirt.design.pool
from saltvirt import errors
from saltvirt.diff.pool_changes import changes
from saltvirt.host import connection
from saltvirt.host.connection import ReadFailure, as_not_found, libvirt, translated
from saltvirt.host.definition import configured
from saltvirt.host.storage import answers, secret
from saltvirt.revert import UndoStack
from saltvirt.system import mount_guard
from saltvirt.xml.storage.pool import Pool

if TYPE_CHECKING:
    from saltvirt.diff.change import Change
    from saltvirt.spec.pool import PoolSpec

_STATES = ("inactive", "building", "running", "degraded", "inaccessible")
# types that are written to a device, which may contain data
_FORMATTED = {"disk", "fs", "logical"}
_FOLDERS = ("dir", "fs", "netfs")


def lookup(conn: libvirt.virConnect, name: str) -> libvirt.virStoragePool:
    """Return the virStoragePool with this name. Raises NotFound, with the host and its pools."""
    with as_not_found(conn, libvirt.VIR_ERR_NO_STORAGE_POOL, f"storage pool {str(name)!r}", names):
        return conn.storagePoolLookupByName(str(name))


def names(conn: libvirt.virConnect) -> list[str]:
    """Return the sorted names of all pools."""
    return sorted(pool.name() for pool in conn.listAllStoragePools())


def running(conn: libvirt.virConnect) -> list[libvirt.virStoragePool]:
    """Return the active virStoragePools."""
    return conn.listAllStoragePools(libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE)


def infos(conn: libvirt.virConnect, name: str | None = None) -> dict[str, PoolInfo | ReadFailure]:
    """Return information about each pool by name; see ``virt.pool_info``."""
    return connection.infos(conn.listAllStoragePools(), name, _info)


class PoolInfo(TypedDict):
    """Information about a pool. Sizes are in bytes.

    pending: the definition for the next start differs from the active one.
    """

    uuid: str
    state: str
    capacity: int
    allocation: int
    free: int
    autostart: bool
    persistent: bool
    pending: bool
    target_path: str | None
    type: str | None


@dataclass(frozen=True)
class PoolOptions:
    """Options for a new pool."""

    start: bool = True
    transient: bool = False
    build: bool = False


def define(conn: libvirt.virConnect, spec: PoolSpec, options: PoolOptions) -> bool:
    """Define the pool of a PoolSpec; True. On failure, the definition is removed again."""
    name = spec.name
    if name in names(conn):
        raise errors.AlreadyExists(
            f"storage pool {name} already exists on {conn.getHostname()}; "
            "virt.pool_update changes it"
        )
    with translated(f"define storage pool {name}"), UndoStack() as undo:
        uuid = secret.store_for_pool(conn, spec, undo)
        text = saltvirt.design.pool.build(spec, secret_uuid=uuid).tostring()
        if options.transient:
            flags = libvirt.VIR_STORAGE_POOL_CREATE_WITH_BUILD if options.build else 0
            conn.storagePoolCreateXML(text, flags)
        else:
            pool = conn.storagePoolDefineXML(text, 0)
            undo.push(f"undefine storage pool {name}", pool.undefine)
            if options.build:
                build(conn, pool)
            if options.start:
                start(pool)
        undo.success()
    return True


def refuse_unmounted(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, consequence: str | None = None
) -> str | None:
    """Return the local folder of a pool, or None.

    Raises Refused if its file system must be mounted first: libvirt starts a pool of type dir
    without it. consequence: as in mount_guard.refuse_unmounted.
    """
    pool_xml = read(pool)
    if pool_xml.type not in _FOLDERS or not connection.is_local(conn):
        return None
    if pool_xml.path:
        mount_guard.refuse_unmounted(pool_xml.path, consequence)
    return pool_xml.path


@dataclass(frozen=True)
class PoolDifference:
    """The difference between a pool and a PoolSpec.

    desired: the desired definition. redefined: changes to the stored definition. running_changes:
    changes to the active pool, empty if it is inactive.
    """

    desired: Pool
    redefined: list[Change]
    running_changes: list[Change]


def compare(
    conn: libvirt.virConnect,
    pool: libvirt.virStoragePool,
    spec: PoolSpec,
    secret_uuid: str | None = None,
) -> PoolDifference:
    """Compare a virStoragePool with its PoolSpec."""
    current = configured_pool(pool)
    uuid = secret_uuid or secret.uuid_for_pool(conn, spec)
    desired = saltvirt.design.pool.build(spec, current, uuid)
    running_changes = changes(desired, read(pool)) if pool.isActive() else []
    return PoolDifference(desired, changes(desired, current), running_changes)


def update(conn: libvirt.virConnect, spec: PoolSpec, test: bool = False) -> bool:
    """Update a pool to its PoolSpec; return whether it differed.

    An active pool keeps its previous definition until it is restarted. test: change nothing.
    """
    pool = lookup(conn, spec.name)
    if test:
        return bool(compare(conn, pool, spec).redefined)
    with translated(f"update storage pool {spec.name}"), UndoStack() as undo:
        uuid = secret.store_for_pool(conn, spec, undo)
        difference = compare(conn, pool, spec, uuid)
        if difference.redefined:
            conn.storagePoolDefineXML(difference.desired.tostring(), 0)
        undo.success()
    return bool(difference.redefined)


def build(conn: libvirt.virConnect, pool: libvirt.virStoragePool, overwrite: bool = False) -> bool:
    """Build a pool's resources (folder, volume group, partition table, file system); True.

    Existing resources are kept, so building twice is safe. overwrite: overwrite other content of
    the device; an existing volume group is kept.
    """
    if pool.isActive() and not overwrite:
        return True
    with translated(f"build storage pool {pool.name()}"):
        kind = read(pool).type
        if kind == "dir":
            refuse_unmounted(conn, pool)
        if kind == "logical" and _has_volume_group(conn, pool):
            return True
        flags = 0
        if kind in _FORMATTED:
            flags = libvirt.VIR_STORAGE_POOL_BUILD_NO_OVERWRITE
            if overwrite:
                flags = libvirt.VIR_STORAGE_POOL_BUILD_OVERWRITE
        answers.pool(pool)
        try:
            pool.build(flags)
        except libvirt.libvirtError as exc:
            # libvirt uses this code both for an existing pool and for other content
            same = "already formatted" in str(exc.get_error_message())
            if exc.get_error_code() != libvirt.VIR_ERR_STORAGE_POOL_BUILT or not same:
                raise
    return True


@contextlib.contextmanager
def _storage_call(pool: libvirt.virStoragePool, verb: str) -> Iterator[None]:
    """Check that the pool's storage responds, and translate libvirt's errors within the block."""
    with translated(f"{verb} storage pool {pool.name()}"):
        answers.pool(pool)
        yield


def start(pool: libvirt.virStoragePool) -> bool:
    """Start the pool; True."""
    with _storage_call(pool, "start"):
        pool.create(0)
    return True


def stop(pool: libvirt.virStoragePool) -> bool:
    """Stop the pool and keep its content; True."""
    with _storage_call(pool, "stop"):
        pool.destroy()
    return True


def refresh(pool: libvirt.virStoragePool) -> bool:
    """Have libvirt reread the pool's content; True."""
    with _storage_call(pool, "refresh"):
        pool.refresh(0)
    return True


def delete(pool: libvirt.virStoragePool) -> bool:
    """Delete the resources of a stopped pool with no volumes in use; True."""
    with _storage_call(pool, "delete the resources of"):
        pool.delete(libvirt.VIR_STORAGE_POOL_DELETE_NORMAL)
    return True


def undefine(conn: libvirt.virConnect, pool: libvirt.virStoragePool) -> bool:
    """Undefine the pool and remove the secret that was created with it; True."""
    definition = configured_pool(pool)
    with translated(f"undefine storage pool {definition.name}"):
        pool.undefine()
    secret.forget_for_pool(conn, definition)
    return True


def set_autostart(pool: libvirt.virStoragePool, on: bool) -> bool:
    """Set whether the pool starts with the host; True."""
    with translated(f"set autostart of storage pool {pool.name()}"):
        pool.setAutostart(int(on))
    return True


def volume_names(pool: libvirt.virStoragePool) -> list[str]:
    """Return the sorted names of the volumes in an active pool."""
    with translated(f"list the volumes of storage pool {pool.name()}"):
        return sorted(pool.listVolumes())


def read(pool: libvirt.virStoragePool) -> Pool:
    """Return the active definition of the pool, or the stored one if it is inactive."""
    return Pool.fromstring(pool.XMLDesc(0))


def configured_pool(pool: libvirt.virStoragePool) -> Pool:
    """Return the stored definition of the pool."""
    return Pool.fromstring(configured(pool, libvirt.VIR_STORAGE_XML_INACTIVE))


def _has_volume_group(conn: libvirt.virConnect, pool: libvirt.virStoragePool) -> bool:
    source = read(pool).source.name or pool.name()
    sources_xml = ElementTree.fromstring(conn.findStoragePoolSources("logical", None, 0))
    return source in {element.text for element in sources_xml.iterfind("source/name")}


def _info(pool: libvirt.virStoragePool) -> PoolInfo:
    state, capacity, allocation, free = pool.info()
    running_xml = read(pool)
    active, persistent = bool(pool.isActive()), bool(pool.isPersistent())
    return {
        "uuid": pool.UUIDString(),
        "state": _STATES[state] if state < len(_STATES) else "unknown",
        "capacity": capacity,
        "allocation": allocation,
        "free": free,
        "autostart": bool(persistent and pool.autostart()),
        "persistent": persistent,
        "pending": active and persistent and _is_pending(pool, running_xml),
        "target_path": running_xml.path,
        "type": running_xml.type,
    }


def _is_pending(pool: libvirt.virStoragePool, running_xml: Pool) -> bool:
    return bool(changes(configured_pool(pool), running_xml))
