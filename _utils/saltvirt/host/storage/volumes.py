"""Volumes in the storage pools of one host."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict

from saltvirt import errors, units
from saltvirt.answers.removal import VolumeRemoval
from saltvirt.design.volume import build
from saltvirt.host import connection
from saltvirt.host.connection import ReadFailure, as_not_found, libvirt, translate, translated
from saltvirt.host.domain import saved_memory
from saltvirt.host.storage import (
    answers,
    files,
    identity,
    pools,
    sharing,
    unchanged_disks,
    usage,
    volume_content,
)
from saltvirt.rights import confidential
from saltvirt.system import bounded_io
from saltvirt.xml.storage.volume import Volume

if TYPE_CHECKING:
    from saltvirt.host.storage.identity import Key
    from saltvirt.spec.volume import VolumeSpec

# maximum number of volumes that are locked at a time for deletion
_BATCH_SIZE = 200
TYPES = ("file", "block", "dir", "network", "netdir", "ploop")


class VolumeInfo(TypedDict):
    """Information about a volume. Sizes are in bytes.

    backing_store: path and format of the backing file.
    """

    type: str
    key: str
    path: str
    capacity: int
    allocation: int
    backing_store: dict[str, str | None] | None
    format: str | None


def lookup(conn: libvirt.virConnect, pool: str, name: str) -> libvirt.virStorageVol:
    """Return the virStorageVol with this name in an active pool. Raises NotFound."""
    pool_object = pools.lookup(conn, pool)
    if not pool_object.isActive():
        raise errors.OperationFailed(
            f"storage pool {pool} on {conn.getHostname()} is not running; virt.pool_start starts it"
        )
    label = f"volume {str(name)!r} in storage pool {pool}"
    with as_not_found(conn, libvirt.VIR_ERR_NO_STORAGE_VOL, label):
        volume = pool_object.storageVolLookupByName(str(name))
        with translated(f"use volume {name} in storage pool {pool}"):
            answers.pool(pool_object)
            answers.volume(volume)
        return volume


def infos(
    conn: libvirt.virConnect, pool: str | None = None, name: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return volumes by pool and name; see ``virt.volume_infos``.

    Every volume is read once, since any of them may be a backing file. A pool or volume that cannot
    be read gets an ``error`` entry.
    """
    read_pools = {p.name(): _read_pool(p) for p in pools.running(conn)}
    used = usage.read(conn, images=False)
    infos_by_pool = {}
    for pool_name, volumes in read_pools.items():
        if pool is not None and pool_name != str(pool):
            continue
        if "error" in volumes and not isinstance(volumes["error"], dict):
            infos_by_pool[pool_name] = volumes
            continue
        shown = {key: volumes[key] for key in volumes if name is None or key == str(name)}
        for key, volume in shown.items():
            volume["used_by"] = used.guests(usage.keys(conn, pool_name, key, volume))
        if shown:
            infos_by_pool[pool_name] = shown
    return infos_by_pool


def users(
    conn: libvirt.virConnect, volume: libvirt.virStorageVol
) -> tuple[usage.Usage, frozenset[Key]]:
    """Return the Usage of the host, and the keys of this virStorageVol."""
    return usage.read(conn, images=False), usage.keys_of_volume(conn, volume)


def users_of_pool(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool
) -> tuple[list[str], list[str]]:
    """Return (guests with volumes in this pool, running ones among them) as sorted names."""
    used = usage.read(conn, images=False)
    keys = usage.keys_of_pool(conn, used, pool)
    return used.guests(keys), used.running(keys)


def delete_pool(conn: libvirt.virConnect, pool: libvirt.virStoragePool) -> bool:
    """Delete the resources of a stopped pool, such as its volume group; True.

    Raises InvalidInput if a guest has a disk in the pool, or other hosts may use it.
    """
    guests, _ = users_of_pool(conn, pool)
    if guests:
        raise errors.InvalidInput(f"storage pool {pool.name()} has volumes of {', '.join(guests)}")
    if not pool.isActive():
        refuse_shared(conn, pool)
        _refuse_missing(conn, pool)
    return pools.delete(pool)


def _refuse_missing(conn: libvirt.virConnect, pool: libvirt.virStoragePool) -> None:
    """Raise InvalidInput if a guest has a missing device that may be a volume of this pool.

    Volumes of an inactive volume group have no device. Pools that are only a folder are not
    affected.
    """
    if pools.read(pool).type in usage.FILES:
        return
    for dom in conn.listAllDomains():
        for path in (
            path for tree in files.trees(dom) for path, _ in files.named_paths(conn, tree)
        ):
            if path.startswith("/dev/") and not usage.is_there(conn, path):
                raise errors.InvalidInput(
                    f"cannot delete storage pool {pool.name()}: {dom.name()} uses {path}, which "
                    "does not exist now and may be a volume of the pool"
                )


def refuse_shared(conn: libvirt.virConnect, pool: libvirt.virStoragePool) -> None:
    """Raise InvalidInput if other hosts may use the pool's resources."""
    pool_xml = pools.read(pool)
    if pool_xml.type in usage.FILES:  # for these types only an empty folder is deleted
        return
    devices = [device.path for device in pool_xml.source.devices if device.path]
    for device in devices or [pool_xml.path or pool.name()]:
        sharing_reason = usage.others_may_have(conn, device)
        if sharing_reason:
            raise errors.InvalidInput(
                f"cannot delete storage pool {pool.name()}: other hosts may use it "
                f"({sharing_reason})"
            )


def define(conn: libvirt.virConnect, pool: str, spec: VolumeSpec) -> bool:
    """Create the volume of a VolumeSpec; True."""
    pool_object = pools.lookup(conn, pool)
    desired = build(spec)
    if pools.read(pool_object).type == "logical" and not spec.backing_store:
        # with a smaller allocation LVM would create a snapshot
        desired.allocation_bytes = desired.capacity_bytes
    return _make(conn, pool_object, desired, desired.tostring())


def define_xml(conn: libvirt.virConnect, pool: str, xml: str) -> bool:
    """Create a volume from its XML text; True."""
    return _make(conn, pools.lookup(conn, pool), Volume.fromstring(xml), xml)


def _make(
    conn: libvirt.virConnect, pool: libvirt.virStoragePool, desired: Volume, xml: str
) -> bool:
    base, format = desired.backing_path, desired.backing_format
    if base and connection.is_local(conn) and files.is_regular(base):
        volume_content.validate_base(conn, base, format)
    with translated(f"create a volume in storage pool {pool.name()}"):
        answers.pool(pool)
        pools.refuse_unmounted(conn, pool)
        pool.createXML(xml, 0)
    return True


def delete(conn: libvirt.virConnect, pool: str, name: str, force: bool = False) -> bool:
    """Delete a volume; True. A volume that may be in use is deleted only with ``force``."""
    volume = lookup(conn, pool, name)
    with contextlib.nullcontext() if force else ensure_unused(conn, pool, [volume]):
        _delete(volume, name, pool)
    return True


def delete_all(
    conn: libvirt.virConnect, pool: str, names: Iterable[str], force: bool = False
) -> None:
    """Delete volumes of a pool, including those that are backing files of others among them."""
    volumes = [lookup(conn, pool, name) for name in names]
    to_delete = {identity.real(volume.path()) for volume in volumes}
    for start in range(0, len(volumes), _BATCH_SIZE):
        batch = volumes[start : start + _BATCH_SIZE]
        with contextlib.nullcontext() if force else ensure_unused(conn, pool, batch, to_delete):
            for volume in batch:
                _delete(volume, volume.name(), pool)


def _delete(volume: libvirt.virStorageVol, name: str, pool: str) -> None:
    with translated(f"delete volume {name} in storage pool {pool}"):
        volume.delete(0)


@contextlib.contextmanager
def ensure_unused(
    conn: libvirt.virConnect,
    pool: str,
    volumes: Collection[libvirt.virStorageVol],
    to_delete: Collection[str] | None = None,
) -> Iterator[None]:
    """Ensure that these volumes of one pool are unused within the block, and that no QEMU opens
    them.

    to_delete: real paths that are deleted as well; by default those of the volumes. Raises
    InvalidInput if a volume is not proven to be unused.
    """
    with _keep_reasons(conn, volumes, to_delete) as reasons:
        for volume in volumes:
            reason = reasons[volume.path()]
            sharing_reason = usage.others_may_have(conn, volume.path())
            if not reason and sharing_reason:
                reason = f"other hosts may use it ({sharing_reason}) and were not asked"
            if reason:
                raise errors.InvalidInput(
                    f"cannot delete volume {volume.name()} in {pool}: {reason}; force=True "
                    "deletes it nevertheless"
                )
        yield


@contextlib.contextmanager
def _keep_reasons(
    conn: libvirt.virConnect,
    volumes: Collection[libvirt.virStorageVol],
    to_delete: Collection[str] | None = None,
) -> Iterator[dict[str, str | None]]:
    """Yield {path: why the host needs the volume, or None}; no QEMU opens the volumes within the
    block. to_delete: as for ensure_unused."""
    paths = [volume.path() for volume in volumes]
    to_delete = {identity.real(path) for path in paths} if to_delete is None else to_delete
    with usage.prevent_open(conn, paths) as open_reasons:
        used = usage.read(conn, sibling_paths=paths)
        yield {
            path: _keep_reason(used, usage.keys_of_volume(conn, volume), to_delete)
            or open_reasons[path]
            for path, volume in zip(paths, volumes, strict=True)
        }


def removal_plan(conn: libvirt.virConnect, pool: str, name: str) -> VolumeRemoval:
    """Return what keeps a volume, and whether other hosts must be asked. Changes nothing."""
    volume = lookup(conn, pool, name)
    with _keep_reasons(conn, [volume]) as reasons:
        return _removal(conn, volume, reasons[volume.path()])


def remove(
    conn: libvirt.virConnect, pool: str, name: str, unused: Collection[str]
) -> VolumeRemoval:
    """Delete a volume. unused: paths that no other host uses. Raises InvalidInput if the volume is
    not proven to be unused."""
    volume = lookup(conn, pool, name)
    with _keep_reasons(conn, [volume]) as reasons:
        removal = _removal(conn, volume, reasons[volume.path()])
        reason = removal.keep
        if not reason and not {*removal.shared} <= {*unused}:
            reason = "other hosts may use it and were not asked"
        if reason:
            raise errors.InvalidInput(f"cannot delete volume {name} in {pool}: {reason}")
        _delete(volume, name, pool)
        return removal


def _removal(
    conn: libvirt.virConnect, volume: libvirt.virStorageVol, reason: str | None
) -> VolumeRemoval:
    path = volume.path()
    shared = {}
    if usage.others_may_have(conn, path):
        identity_fact = usage.file_identity(conn, path)
        shared = sharing.as_data({identity_fact.path: identity_fact})
    return VolumeRemoval(path, volume.info()[2], reason, shared)


def refuse_used(
    conn: libvirt.virConnect, pool: str, volumes: Collection[libvirt.virStorageVol]
) -> None:
    """Raise InvalidInput unless all these volumes of one pool are proven to be unused."""
    with ensure_unused(conn, pool, volumes):
        pass


def refuse_written(
    conn: libvirt.virConnect, pool: str, volume: libvirt.virStorageVol, force: bool = False
) -> None:
    """Raise InvalidInput if the volume must not be overwritten.

    That is a volume that a running guest or an unknown QEMU process has open, that is a backing
    file, or that has a user other than a guest. Disks of stopped guests without saved memory may be
    overwritten. force: also accept a volume that other hosts may use; their guests are not checked.
    """
    name, path = volume.name(), volume.path()
    used, keys = usage.read(conn, sibling_paths=[path]), usage.keys_of_volume(conn, volume)
    if running := ", ".join(used.running(keys)):
        raise errors.InvalidInput(
            f"volume {name} in {pool} is open in {running}: shut it down first"
        )
    open_reason = usage.open_reason(conn, path)
    if open_reason:
        raise errors.InvalidInput(f"cannot overwrite volume {name} in {pool}: {open_reason}")
    guests = _guests_with_disk(conn, volume, keys)
    _refuse_saved(conn, guests, f"overwrite volume {name} in {pool}, a disk of")
    other_users = sorted({*used.users_of(keys)} - guests)
    if other_users:
        raise errors.InvalidInput(
            f"cannot overwrite volume {name} in {pool}: "
            f"{confidential.sensitive_names(other_users)} needs it"
        )
    sharing_reason = None if force else usage.others_may_have(conn, path)
    if sharing_reason:
        raise errors.InvalidInput(
            f"cannot overwrite volume {name} in {pool}: other hosts may use it ({sharing_reason}) "
            "and were not asked; if none of their guests uses it, pass force=True to "
            "virt.volume_upload or virt.volume_resize"
        )


def refuse_resized(conn: libvirt.virConnect, pool: str, volume: libvirt.virStorageVol) -> None:
    """Raise Refused for a disk of a stopped guest with saved memory."""
    guests = _guests_with_disk(conn, volume, usage.keys_of_volume(conn, volume))
    _refuse_saved(conn, guests, f"resize volume {volume.name()} in {pool}, a disk of")


def _refuse_saved(conn: libvirt.virConnect, guests: Iterable[str], action: str) -> None:
    for guest in sorted(guests):
        # a domain of another connection, or undefined
        with contextlib.suppress(libvirt.libvirtError):
            saved_memory.refuse(conn.lookupByName(guest), action)


@contextlib.contextmanager
def prevent_open(
    conn: libvirt.virConnect, pool: str, volume: libvirt.virStorageVol
) -> Iterator[None]:
    """Prevent QEMU from opening a volume while it is overwritten.

    Raises InvalidInput if a QEMU process has it open already.
    """
    with usage.prevent_open(conn, [volume.path()]) as open_reasons:
        if reason := open_reasons[volume.path()]:
            raise errors.InvalidInput(
                f"cannot overwrite volume {volume.name()} in {pool}: {reason}"
            )
        yield


def _guests_with_disk(
    conn: libvirt.virConnect, volume: libvirt.virStorageVol, keys: frozenset[Key]
) -> set[str]:
    """Return the names of the guests that have the volume as a disk; of a server's volume all
    users."""
    if not volume.path().startswith("/"):
        return {*usage.read(conn, images=False).guests(keys)}
    return {
        dom.name()
        for dom in conn.listAllDomains()
        for tree in files.trees(dom)
        for path, _ in files.named_paths(conn, tree)
        if usage.keys_of(conn, path) & keys
    }


def _keep_reason(used: usage.Usage, keys: frozenset[Key], to_delete: Collection[str]) -> str | None:
    """Return the reason for keeping a volume; None if it is proven to be unused."""
    guests, all_users = used.guests(keys), used.users_of(keys, to_delete)
    if guests:
        owners = confidential.sensitive_names(guests)
        return f"it is a disk, or the backing file of a disk, of {owners}"
    if all_users:
        return f"it is the backing file of {', '.join(all_users)}"
    return used.keep_reason(keys, to_delete)


def resize(
    conn: libvirt.virConnect,
    pool: str,
    name: str,
    size_bytes: int,
    shrink: bool = False,
    force: bool = False,
) -> bool:
    """Resize a volume; True.

    Shrinking needs ``shrink``, and is refused if others use the volume, or, without ``force``, if
    other hosts may use it. A volume whose content refers to other files is refused.
    """
    volume = lookup(conn, pool, name)
    old_bytes = volume.info()[1]
    if size_bytes == old_bytes:
        return True
    if size_bytes < old_bytes and not shrink:
        raise errors.InvalidInput(
            f"volume {name} in {pool} has {units.human_bytes(old_bytes)}, more than "
            f"{units.human_bytes(size_bytes)}; shrink=True truncates it"
        )
    if size_bytes < old_bytes:
        refuse_written(conn, pool, volume, force)
    used, keys = users(conn, volume)
    if used.running(keys):
        raise errors.InvalidInput(
            f"volume {name} in {pool} is open in {', '.join(used.running(keys))}; "
            "virt.resize_disk grows the disk of a running guest"
        )
    refuse_resized(conn, pool, volume)
    volume_content.refuse_foreign(conn, volume)
    flags = libvirt.VIR_STORAGE_VOL_RESIZE_SHRINK if size_bytes < old_bytes else 0
    with translated(f"resize volume {name} in storage pool {pool}"):
        volume.resize(size_bytes, flags)
    return True


def clone(
    conn: libvirt.virConnect, pool: str, name: str, new_name: str, target_pool: str | None = None
) -> bool:
    """Copy a volume with its data to ``target_pool``, by default to the same pool; True.

    A volume that a running guest writes to is refused, since the copy would be inconsistent, and no
    guest can start with it meanwhile. A volume whose content refers to other files is refused, and
    so is a copy for which the pool has no space.
    """
    volume = lookup(conn, pool, name)
    target = pools.lookup(conn, target_pool or pool)
    used, keys = users(conn, volume)
    if running := ", ".join(used.running(keys)):
        raise errors.InvalidInput(
            f"volume {name} in {pool} is open in {running}: shut it down first"
        )
    volume_content.refuse_foreign(conn, volume)
    is_local_file = connection.is_local(conn) and files.is_regular(volume.path())
    paths = [volume.path()] if is_local_file else []
    action = f"clone volume {name} in storage pool {pool}"
    with translated(action), unchanged_disks.UnchangedDisks(f"storage pool {pool}", paths):
        answers.pool(target)
        pools.refuse_unmounted(conn, target)
        volume_content.refuse_oversized(conn, volume, target)
        copy = volume_content.definition(volume)
        copy.name, copy.key, copy.path, copy.physical_bytes = str(new_name), None, None, None
        target.createXMLFrom(copy.tostring(), volume, 0)
    return True


def _read_pool(pool: libvirt.virStoragePool) -> dict[str, Any]:
    """Return information about each volume by name, or an ``error`` entry for the pool."""
    try:
        volumes = pool.listAllVolumes(0)
    except libvirt.libvirtError as exc:
        return {"error": str(translate(exc))}
    return {volume.name(): _read(volume) for volume in volumes}


def _read(volume: libvirt.virStorageVol) -> VolumeInfo | ReadFailure:
    try:
        answers.volume(volume)
        return describe(volume)
    except bounded_io.StorageTimeout as exc:
        return {"error": exc.strerror}
    except errors.VirtError as exc:
        return {"error": str(exc)}
    except libvirt.libvirtError as exc:
        return {"error": str(translate(exc))}  # such as a file deleted without libvirt


def describe(volume: libvirt.virStorageVol) -> VolumeInfo:
    """Return information about a virStorageVol, without its users."""
    kind, capacity, allocation = volume.info()
    definition = volume_content.definition(volume)
    backing = None
    if definition.backing_path:
        backing = {"path": definition.backing_path, "format": definition.backing_format}
    return {
        "type": TYPES[kind] if kind < len(TYPES) else "unknown",
        "key": volume.key(),
        "path": volume.path(),
        "capacity": capacity,
        "allocation": allocation,
        "backing_store": backing,
        "format": definition.format,
    }
