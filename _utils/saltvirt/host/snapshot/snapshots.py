"""Creation, listing, deletion and revert of snapshots, by the rules of ``saltvirt.snapshot``."""

from __future__ import annotations

import datetime
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt, translate
from saltvirt.host.domain import creation, guest_clock, metadata, saved_memory, snapshot_state
from saltvirt.host.domain.lookup import lookup
from saltvirt.host.migration import move_journal
from saltvirt.host.provision import admission
from saltvirt.host.snapshot import (
    affected_files,
    checkpoints,
    internal_check,
    layers,
    quiesce,
    reader,
    revert_devices,
)
from saltvirt.host.storage import files
from saltvirt.snapshot import rules
from saltvirt.snapshot.tree import EXTERNAL, SnapshotNode, SnapshotTree
from saltvirt.spec import values
from saltvirt.system import mount_guard
from saltvirt.units import human_bytes
from saltvirt.xml.domain import snapshot as xml
from saltvirt.xml.domain.domain import Domain

if TYPE_CHECKING:
    from saltvirt.host.provision.admission import AdmissionConfig
    from saltvirt.xml.domain.metadata import GuestRecord

# Salt's text for no snapshots
NONE = "N/A"
# VIR_ERR_CONFIG_UNSUPPORTED and VIR_ERR_OPERATION_UNSUPPORTED
_UNSUPPORTED_CODES = (67, 84)
# libvirt uses the name in file names, for layers after the disk's name
_LONGEST_NAME_BYTES = 200
# the first libvirt version that can revert to external snapshots
_REVERTS_VERSION = 9_009_000


class SnapshotDetails(TypedDict):
    """Information about a snapshot; see ``virt.list_snapshots``."""

    name: str
    created: str
    running: bool
    current: bool
    state: str | None
    parent: str | None
    description: str | None
    external: bool


@dataclass(frozen=True)
class SnapshotRequest:
    """A snapshot to create.

    name: None for the guest's name with the time. disk_only: True for an external snapshot, False
    for an internal one, None to choose for the guest. images_dir: the folder for layers of disks
    that are not files.
    """

    name: str | None = None
    suffix: str | None = None
    description: str | None = None
    disk_only: bool | None = None
    quiesce: bool = False
    images_dir: str | None = None


@dataclass(frozen=True)
class TakenSnapshot:
    """A snapshot that was created or planned.

    notes: messages for the operator.
    """

    name: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RevertResult:
    """The result or plan of a revert.

    deleted: names of the snapshots that are deleted. notes: what else differs from the snapshot or
    is lost.
    """

    name: str
    deleted: tuple[str, ...]
    notes: tuple[str, ...] = ()


def listing(conn: libvirt.virConnect, name: str | None = None) -> dict[str, Any]:
    """Return snapshots by guest, for one guest or all; see ``virt.list_snapshots``."""
    if name is not None:
        return {str(name): _guest_snapshots(conn, lookup(conn, name))}
    return {domain.name(): _described_or_error(conn, domain) for domain in conn.listAllDomains()}


@dataclass(frozen=True)
class _SnapshotPlan:
    """A validated plan for a snapshot."""

    domain: libvirt.virDomain
    guest: rules.SnapshotGuest
    choice: rules.SnapshotKind
    name: str
    disks: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def create(conn: libvirt.virConnect, guest: str, request: SnapshotRequest) -> TakenSnapshot:
    """Create a snapshot."""
    plan = _plan(conn, guest, request)
    description = str(request.description) if request.description else None
    document = xml.DomainSnapshot(name=plan.name, description=description)
    for target, path in plan.disks:
        disk = xml.DomainSnapshotDisk(
            name=target, snapshot=EXTERNAL, type="file", driver_type="qcow2", file=path
        )
        document.disks.append(disk)
    of_volumes = plan.choice.external and any(disk.kind == "volume" for disk in plan.guest.disks)
    with checkpoints.hidden_checkpoints(plan.domain):
        with quiesce.ensure_thawed(plan.domain, request.quiesce):
            flags = _flags(plan.choice, request)
            vir_snapshot = plan.domain.snapshotCreateXML(document.tostring(), flags)
        if of_volumes:
            layers.name_paths(conn, plan.domain, vir_snapshot)
    new_snapshot = reader.snapshot(conn, vir_snapshot)
    notes = (*plan.notes, *(() if plan.guest.running else layers.protect(conn, new_snapshot)))
    try:
        snapshot_state.save(conn, plan.domain, new_snapshot)
    except errors.OperationFailed as exc:
        notes = (*notes, f"its firmware variables and TPM state are not saved: {exc.text}")
    return TakenSnapshot(vir_snapshot.getName(), notes)


def plan_create(conn: libvirt.virConnect, guest: str, request: SnapshotRequest) -> TakenSnapshot:
    """Return the result of :func:`create` without changing anything."""
    plan = _plan(conn, guest, request)
    return TakenSnapshot(plan.name, plan.notes)


def _plan(conn: libvirt.virConnect, guest: str, request: SnapshotRequest) -> _SnapshotPlan:
    description = values.short(values.DESCRIPTION_CHARS)
    parts = {"name": values.label, "suffix": values.label, "description": description}
    for field, parse in parts.items():
        if getattr(request, field):
            parse(getattr(request, field), field)
    if str(request.name or "").lower() == str(guest).lower():
        raise errors.InvalidInput(
            f"invalid name of a snapshot: {request.name} is the name of the guest {guest}"
        )
    domain, name = lookup(conn, guest), _name(guest, request)
    creation.require_complete(domain, "take a snapshot of")
    saved_memory.refuse(domain, "take a snapshot of")
    if "/" in name:
        raise errors.InvalidInput(f"invalid name of a snapshot: {name} contains a slash")
    if len(os.fsencode(name)) > _LONGEST_NAME_BYTES:
        raise errors.InvalidInput(
            f"invalid name of a snapshot: {name[:40]}... is longer than {_LONGEST_NAME_BYTES} bytes"
        )
    tree, guest_facts = reader.tree(conn, domain), reader.guest(conn, domain)
    if name in tree:
        raise errors.AlreadyExists(f"a snapshot {name} of {guest} already exists")
    _refuse_without_disks(conn, guest_facts)
    rules.refuse_unknown(guest_facts)
    choice = rules.choose(guest_facts, tree, request.disk_only, request.quiesce)
    rules.refuse_name(name, choice)
    if choice.external:
        reader.refuse_moving_disks(conn, domain, "take a snapshot of")
    else:
        internal_check.refuse_taken(conn, guest_facts.disks, name)
    if request.quiesce and conn.getType() == reader.DRIVER:
        quiesce.require_agent(domain)
    disks = tuple(_layers(guest_facts, name, request.images_dir)) if choice.external else ()
    room_notes = _room_notes(conn, domain, guest_facts, choice, disks)
    unsaved = snapshot_state.unsaved(conn, domain)
    notes = (*_kind_notes(guest_facts, choice), *room_notes, *unsaved)
    return _SnapshotPlan(domain, guest_facts, choice, name, disks, notes)


def _refuse_without_disks(conn: libvirt.virConnect, guest: rules.SnapshotGuest) -> None:
    if conn.getType() == reader.DRIVER and not guest.disks:
        raise errors.Unsupported(f"{guest.name} has no writable disk: there is nothing to snapshot")


def _kind_notes(guest: rules.SnapshotGuest, choice: rules.SnapshotKind) -> Iterator[str]:
    if choice.reason:
        yield f"the snapshot is external, because {choice.reason}"
    if choice.reason and guest.running:
        yield f"the snapshot does not contain the memory: after a revert {guest.name} is shut off"


def _layers(
    guest: rules.SnapshotGuest, name: str, images_dir: str | None
) -> Iterator[tuple[str, str]]:
    """Yield (target, path) of each layer that libvirt cannot name itself.

    Its disk is not a file in the definition, or its name is that of another disk's layer.
    """
    layer_paths: set[str] = set()
    for disk in guest.disks:
        path = _layer_path(guest.name, disk, name, images_dir)
        by_libvirt = path not in layer_paths and disk.kind == "file"
        if path in layer_paths:
            path = f"{disk.path}.{name}"
        rules.refuse_layer(guest, path)
        layer_paths.add(path)
        if by_libvirt:
            continue
        if os.path.lexists(path):
            raise errors.AlreadyExists(
                f"cannot create the snapshot {name}: its layer {path} already exists"
            )
        yield disk.target, path


def _layer_path(guest: str, disk: rules.WritableDisk, name: str, images_dir: str | None) -> str:
    """Return the path that libvirt would use, beside the disk's file; else one in the images
    folder."""
    if disk.path and (disk.regular or disk.kind == "file"):
        return f"{os.path.splitext(disk.path)[0]}.{name}"
    if not images_dir:
        raise errors.InvalidInput(
            f"disk {disk.target} of {guest} is not a file, and virt:images sets no folder "
            "for its layer"
        )
    mount_guard.refuse_unmounted(images_dir)
    return os.path.join(images_dir, f"{guest}_{disk.target}.{name}")


def _room_notes(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    guest: rules.SnapshotGuest,
    choice: rules.SnapshotKind,
    layered: tuple[tuple[str, str], ...],
) -> Iterator[str]:
    """Yield warnings if the layers may outgrow the free space.

    Raises Refused if there is not enough space for the snapshot itself.
    """
    if not connection.is_local(conn):
        return
    for path, needed in rules.required_bytes(guest, choice).items():
        rules.refuse_without_room(guest.name, path, needed, _free(path))
    if not choice.external:
        return
    elsewhere = dict(layered)
    grow: dict[str, int] = {}
    for disk in guest.disks:
        layer_path = elsewhere.get(disk.target) or disk.path
        if layer_path:
            folder = os.path.dirname(files.real(layer_path))
            grow[folder] = grow.get(folder, 0) + _capacity(conn, domain, disk)
    for folder, growth_bytes in grow.items():
        if _free(folder) < growth_bytes:
            yield (
                f"the layers of the snapshot may grow to {human_bytes(growth_bytes)}, but "
                f"{folder} has only {human_bytes(_free(folder))} free"
            )


def _capacity(conn: libvirt.virConnect, domain: libvirt.virDomain, disk: rules.WritableDisk) -> int:
    """Return the maximum size of a disk. For a stopped guest, libvirt does not look into pools."""
    if disk.kind == "volume" and disk.path:
        return int(conn.storageVolLookupByPath(disk.path).info()[1])
    return int(domain.blockInfo(disk.target)[0])


def _free(path: str) -> int:
    """Return the free bytes on a path's file system."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    try:
        statistics = os.statvfs(folder)
    except OSError as exc:
        raise errors.OperationFailed(f"{folder}: {exc.strerror}") from exc
    return statistics.f_bavail * statistics.f_frsize


def delete(
    conn: libvirt.virConnect,
    guest: str,
    names: Collection[str],
    everything: bool = False,
    children: bool = False,
    unused: Collection[str] = (),
) -> dict[str, Any]:
    """Delete snapshots; return the deleted and the remaining ones by name.

    names: all must exist, or nothing is deleted. everything: all snapshots. children: include all
    snapshots made after them. unused: see affected_files.refuse.
    """
    domain, tree, order = _plan_deletion(conn, guest, names, everything, children)
    vir_snapshots = _by_name(domain)
    affected_files.refuse(conn, domain, _merged(conn, domain, vir_snapshots, order), unused)
    if order:
        _make_writable(conn, domain)
    deleted = {}
    for name in order:
        vir_snapshots[name].delete(0)
        snapshot_state.forget(domain.UUIDString(), [tree[name]])
        deleted[name] = describe(tree[name])
    return {"available": {guest: _guest_snapshots(conn, domain)}, "deleted": deleted}


def plan_delete(
    conn: libvirt.virConnect,
    guest: str,
    names: Collection[str],
    everything: bool = False,
    children: bool = False,
) -> tuple[dict[str, SnapshotDetails], affected_files.AffectedFiles]:
    """Return (snapshots that would be deleted, AffectedFiles); change nothing."""
    domain, tree, order = _plan_deletion(conn, guest, names, everything, children)
    deletable = {name: describe(tree[name]) for name in order}
    stake = _merged(conn, domain, _by_name(domain), order)
    affected_files.refuse(conn, domain, stake, stake.shared)
    return deletable, stake


def _plan_deletion(
    conn: libvirt.virConnect, guest: str, names: Collection[str], everything: bool, children: bool
) -> tuple[libvirt.virDomain, SnapshotTree, list[str]]:
    """Return (domain, its snapshots, names to delete in order)."""
    domain = lookup(conn, guest)
    if not names and not everything:
        raise errors.InvalidInput(f"specify the snapshots of {guest} to delete, or all=True")
    tree = reader.tree(conn, domain)
    to_delete = {*(tree.newest_first() if everything else rules.check_names(guest, names, tree))}
    to_delete = tree.with_children(to_delete) if children else to_delete
    order = rules.deletion_order(reader.guest(conn, domain), tree, to_delete)
    layered = {disk.target for name in order for disk in tree[name].disks if disk.layer}
    if any(tree[name].external for name in order):
        saved_memory.refuse(domain, "delete snapshots of")
        reader.refuse_moving_disks(conn, domain, "delete snapshots of", layered)
    changed = [tree[name] for name in order]
    reader.refuse_without_disks(conn, domain, changed, "delete snapshots of")
    return domain, tree, order


def _by_name(domain: libvirt.virDomain) -> dict[str, libvirt.virDomainSnapshot]:
    return {vir_snapshot.getName(): vir_snapshot for vir_snapshot in reader.oldest_first(domain)}


def _merged(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    vir_snapshots: dict[str, libvirt.virDomainSnapshot],
    to_delete: Collection[str],
) -> affected_files.AffectedFiles:
    changed = affected_files.merged_paths(vir_snapshots[name] for name in to_delete)
    return affected_files.assess(conn, domain, changed, "virt.delete_snapshots")


def _make_writable(conn: libvirt.virConnect, domain: libvirt.virDomain) -> None:
    """Make the guest's own disks writable, since layers are merged into them.

    A disk that was migrated here from below a snapshot by an early version is read-only.
    """
    for path in map(files.real, metadata.disk_paths(conn, files.trees(domain))):
        if files.is_regular(path) and not os.stat(path).st_mode & stat.S_IWUSR:
            os.chmod(path, 0o600)


def revert(
    conn: libvirt.virConnect,
    guest: str,
    name: str | None = None,
    cleanup: bool = False,
    unused: Collection[str] = (),
    admission_config: AdmissionConfig | None = None,
) -> RevertResult:
    """Revert the guest to a snapshot.

    name: None for the parent of the current snapshot. cleanup: delete every snapshot that is newer
    or was made after it. unused: see affected_files.refuse. admission_config: None to skip
    admission.
    """
    domain, tree, plan = _plan_revert(conn, guest, name, cleanup)
    _admit(conn, domain, tree[plan.name], admission_config)
    vir_snapshots, target = _by_name(domain), tree[plan.name]
    affected_files.refuse(
        conn, domain, _revert_files(conn, domain, vir_snapshots, tree, plan), unused
    )
    _refuse_needed(conn, domain, target)
    notes = [
        *_revert_notes(conn, domain, tree, target),
        *rules.internal_leftovers(guest, tree, plan),
    ]
    old_record = metadata.of_domain(domain)
    remaining = list(plan.deleted)
    if target.external:
        if not _recreates_layers(conn):
            with checkpoints.hidden_checkpoints(domain):
                revert_devices.empty_drives(conn, domain, vir_snapshots[plan.name])
        remaining = _revert_layers(conn, domain, (target, vir_snapshots), tree, remaining, unused)
    else:
        checkpoints.remove(conn, domain)
        revert_devices.empty_drives(conn, domain, vir_snapshots[plan.name])
        domain.revertToSnapshot(vir_snapshots[plan.name], 0)
    _keep_record(domain, old_record)
    snapshot_state.restore(conn, domain, target)
    _drop(conn, domain, [tree[snapshot_name] for snapshot_name in remaining], unused)
    snapshot_state.forget(
        domain.UUIDString(), [tree[snapshot_name] for snapshot_name in plan.deleted]
    )
    clock_note = guest_clock.set_now(domain) if target.memory != "no" else None
    notes += [clock_note] if clock_note else []
    return RevertResult(plan.name, plan.deleted, tuple(notes))


def plan_revert(
    conn: libvirt.virConnect,
    guest: str,
    name: str | None = None,
    cleanup: bool = False,
    admission_config: AdmissionConfig | None = None,
) -> tuple[RevertResult, affected_files.AffectedFiles]:
    """Return (result of the revert, AffectedFiles); change nothing."""
    domain, tree, plan = _plan_revert(conn, guest, name, cleanup)
    _admit(conn, domain, tree[plan.name], admission_config)
    target = tree[plan.name]
    checkpoints.refuse_foreign(domain)
    clock_note = guest_clock.expected_warning(domain) if target.memory != "no" else None
    lasting = rules.internal_leftovers(guest, tree, plan)
    notes = (
        *_revert_notes(conn, domain, tree, target),
        *lasting,
        *([clock_note] if clock_note else []),
    )
    stake = _revert_files(conn, domain, _by_name(domain), tree, plan)
    affected_files.refuse(conn, domain, stake, stake.shared)
    _refuse_needed(conn, domain, target)
    return RevertResult(plan.name, plan.deleted, notes), stake


def _admit(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    target: SnapshotNode,
    admission_config: AdmissionConfig | None,
) -> None:
    """Raise NoRoom if a stopped guest would be started with the snapshot's memory beyond
    capacity."""
    if admission_config and target.state in revert_devices.RUNS and target.memory != "no":
        with admission_config.lock():
            admission.check_start(conn, admission_config, domain)


def _revert_files(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    vir_snapshots: dict[str, libvirt.virDomainSnapshot],
    tree: SnapshotTree,
    plan: rules.RevertPlan,
) -> affected_files.AffectedFiles:
    """Return the affected files: layers that are recreated or deleted, and the files below them."""
    changed = affected_files.merged_paths(
        vir_snapshots[snapshot_name] for snapshot_name in plan.deleted
    )
    if tree[plan.name].external:
        removed_names = (plan.name, *tree.descendants(plan.name))
        layers_removed = [vir_snapshots[snapshot_name] for snapshot_name in removed_names]
        changed |= affected_files.layers(layers_removed) | affected_files.current_sources(
            domain, vir_snapshots[plan.name]
        )
    return affected_files.assess(conn, domain, changed, "virt.revert")


def _refuse_needed(
    conn: libvirt.virConnect, domain: libvirt.virDomain, target: SnapshotNode
) -> None:
    """Raise Refused if something else on this host uses a disk that an internal snapshot
    reverts."""
    files_to_restore = affected_files.AffectedFiles("virt.revert", set(target.inside))
    affected_files.refuse(conn, domain, files_to_restore, refuse_unknown=False)


def _plan_revert(
    conn: libvirt.virConnect, guest: str, name: str | None, cleanup: bool
) -> tuple[libvirt.virDomain, SnapshotTree, rules.RevertPlan]:
    domain = lookup(conn, guest)
    creation.require_complete(domain, "revert")
    saved_memory.refuse(domain, "revert")
    move_journal.require_startable(domain)
    tree = reader.tree(conn, domain)
    plan = rules.revert(guest, tree, str(name) if name else None, cleanup)
    changed = [tree[snapshot_name] for snapshot_name in (plan.name, *plan.deleted)]
    reader.refuse_without_disks(conn, domain, changed, "revert", next_start=True)
    _refuse_failing(conn, domain, tree, plan.name)
    if reader.compares(conn) and tree[plan.name].state in revert_devices.RUNS:
        missing_media = revert_devices.lost_media(conn, _by_name(domain)[plan.name])
        rules.refuse_undeletable(guest, tree, plan, missing_media)
    return domain, tree, plan


def _refuse_failing(
    conn: libvirt.virConnect, domain: libvirt.virDomain, tree: SnapshotTree, name: str
) -> None:
    """Raise Refused or Unsupported if the revert would fail after it has changed something."""
    internal_check.refuse(conn, domain, tree[name])
    vir_snapshots = _by_name(domain)
    if tree[name].external and _recreates_layers(conn):
        for snapshot_name in (name, *tree.descendants(name)):
            layers.layers(vir_snapshots[snapshot_name])
    else:
        revert_devices.refuse_without_networks(conn, domain, vir_snapshots[name], tree[name])


def _recreates_layers(conn: libvirt.virConnect) -> bool:
    """Return whether this libvirt cannot revert to an external snapshot itself."""
    return bool(conn.getType() == reader.DRIVER and conn.getLibVersion() < _REVERTS_VERSION)


def _revert_notes(
    conn: libvirt.virConnect, domain: libvirt.virDomain, tree: SnapshotTree, target: SnapshotNode
) -> list[str]:
    """Return messages about what will differ from the snapshot, or will be lost."""
    notes = snapshot_state.not_restored(domain, target)
    if target.external and _recreates_layers(conn):
        return notes  # the layers are recreated, and the definition is kept
    for drive, path in revert_devices.lost_media(conn, _by_name(domain)[target.name]).items():
        notes.append(f"{drive} will be empty: its medium {path} no longer exists")
    snapshot_targets = {disk.target for disk in target.disks}
    layered = set[str]().union(*(snapshot.layers for snapshot in tree))
    root = files.trees(domain)[-1]
    for disk in Domain(root).disks:
        data_path = disk.source and (disk.source.file or disk.source.dev or disk.source.volume)
        if (
            snapshot_targets
            and disk.target not in snapshot_targets
            and data_path
            and data_path not in layered
        ):
            notes.append(
                f"disk {disk.target} was attached after snapshot {target.name} and is "
                f"detached; its file {data_path} is not deleted"
            )
    return notes


def _keep_record(domain: libvirt.virDomain, old_record: GuestRecord) -> None:
    """See metadata.reverted."""
    current_record = metadata.of_domain(domain)
    if not (current_record and old_record):
        return
    record = metadata.reverted(old_record, current_record)
    if record.tostring() != current_record.tostring():
        metadata.write(domain, record)


def _drop(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    to_delete: Collection[SnapshotNode],
    unused: Collection[str],
) -> None:
    """Delete snapshots that the reverted guest is not based on; nothing is merged into its
    files."""
    vir_snapshots = _by_name(domain)
    current_sources = {disk.location for disk in reader.guest(conn, domain).disks}
    for snapshot in to_delete:
        flags = 0
        if current_sources and (snapshot.external or not snapshot.inside <= current_sources):
            flags = libvirt.VIR_DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY
            layers.remove(conn, snapshot.layers - current_sources, unused, domain.UUIDString())
        vir_snapshots[snapshot.name].delete(flags)


def _revert_layers(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    target_and_all: tuple[SnapshotNode, dict[str, libvirt.virDomainSnapshot]],
    tree: SnapshotTree,
    newer: list[str],
    unused: Collection[str],
) -> list[str]:
    """Revert to an external snapshot; the names that remain to be deleted.

    target_and_all: the snapshot, and all of libvirt's by name.
    """
    target, vir_snapshots = target_and_all
    checkpoints.refuse_foreign(domain)
    if not _recreates_layers(conn):
        if target.of_layers_alone:
            layers.stop(domain)
        try:
            domain.revertToSnapshot(vir_snapshots[target.name], 0)
            return newer
        except libvirt.libvirtError as exc:
            if exc.get_error_code() not in _UNSUPPORTED_CODES:
                raise
    newer_names = [name for name in tree.newest_first() if name in tree.descendants(target.name)]
    newer_snapshots = [vir_snapshots[name] for name in newer_names]
    layers.revert(conn, domain, vir_snapshots[target.name], newer_snapshots, unused)
    return [name for name in newer if name not in newer_names]


def describe(snapshot: SnapshotNode) -> SnapshotDetails:
    """Return one snapshot as plain data; see ``virt.list_snapshots``."""
    return {
        "name": snapshot.name,
        "created": datetime.datetime.fromtimestamp(snapshot.created).isoformat(" "),
        "running": snapshot.state == "running",
        "current": snapshot.current,
        "state": snapshot.state,
        "parent": snapshot.parent,
        "description": snapshot.description,
        "external": snapshot.external,
    }


def _guest_snapshots(
    conn: libvirt.virConnect, domain: libvirt.virDomain
) -> list[SnapshotDetails] | str:
    return [describe(snapshot) for snapshot in reader.tree(conn, domain)] or NONE


def _described_or_error(
    conn: libvirt.virConnect, domain: libvirt.virDomain
) -> list[SnapshotDetails] | str | dict[str, str]:
    try:
        return _guest_snapshots(conn, domain)
    except libvirt.libvirtError as exc:
        return {"error": str(translate(exc))}


def _name(guest: str, request: SnapshotRequest) -> str:
    name = str(request.name or "") or f"{guest}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    return f"{name}-{request.suffix}" if request.suffix else name


def _flags(choice: rules.SnapshotKind, request: SnapshotRequest) -> int:
    flags = 0
    if choice.external:
        flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
        flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_ATOMIC
    if request.quiesce:
        flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_QUIESCE
    return flags
