"""Snapshots of a guest: taken, listed, deleted and reverted to, by the rules of
``saltvirt.snapshot``."""

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
    checkpoints,
    inside,
    layers,
    needs,
    quiesce,
    read,
    returning,
)
from saltvirt.host.storage import files, mounted
from saltvirt.snapshot import rules
from saltvirt.snapshot.tree import EXTERNAL, Snapshot, Tree
from saltvirt.spec import values
from saltvirt.units import human_bytes
from saltvirt.xml import snapshot as xml
from saltvirt.xml.domain import Domain

if TYPE_CHECKING:
    from saltvirt.host.provision.admission import AdmissionConfig
    from saltvirt.xml.metadata import GuestRecord

# what Salt's users know for "there is none"
NONE = "N/A"
# VIR_ERR_CONFIG_UNSUPPORTED and VIR_ERR_OPERATION_UNSUPPORTED
_CANNOT = (67, 84)
# libvirt names a file after a snapshot, and a layer after the disk, too
_LONGEST_NAME_BYTES = 200
# the libvirt that goes back to external snapshots itself
_GOES_BACK = 9_009_000


class Described(TypedDict):
    """One snapshot; see ``virt.list_snapshots``."""

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
    """A snapshot to take. name: None for the guest's name with the time. disk_only: True for an
    external one, False for an internal one, None for what suits the guest. images_dir: the folder
    for layers on top of what is no file."""

    name: str | None = None
    suffix: str | None = None
    description: str | None = None
    disk_only: bool | None = None
    quiesce: bool = False
    images_dir: str | None = None


@dataclass(frozen=True)
class Taken:
    """A snapshot, taken or planned. notes: sentences about what is particular about it."""

    name: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reverted:
    """What going back to a snapshot did or would do. deleted: names of the snapshots that go after
    it. notes: sentences about what else is different from the day of the snapshot, or lost."""

    name: str
    deleted: tuple[str, ...]
    notes: tuple[str, ...] = ()


def listing(conn: libvirt.virConnect, name: str | None = None) -> dict[str, Any]:
    """Snapshots by guest name; of one guest, or of all: see ``virt.list_snapshots``."""
    if name is not None:
        return {str(name): _described(conn, lookup(conn, name))}
    return {domain.name(): _described_or_error(conn, domain) for domain in conn.listAllDomains()}


@dataclass(frozen=True)
class _Plan:
    """A snapshot that may be taken."""

    domain: libvirt.virDomain
    guest: rules.Guest
    choice: rules.Choice
    name: str
    disks: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def create(conn: libvirt.virConnect, guest: str, wanted: SnapshotRequest) -> Taken:
    """Takes the snapshot."""
    plan = _plan(conn, guest, wanted)
    description = str(wanted.description) if wanted.description else None
    document = xml.Snapshot(name=plan.name, description=description)
    for target, path in plan.disks:
        document.disks.append(
            xml.SnapshotDisk(
                name=target, snapshot=EXTERNAL, type="file", driver_type="qcow2", file=path
            )
        )
    of_volumes = plan.choice.external and any(disk.kind == "volume" for disk in plan.guest.disks)
    with checkpoints.aside(plan.domain):
        with quiesce.thawed(plan.domain, wanted.quiesce):
            made = plan.domain.snapshotCreateXML(document.tostring(), _flags(plan.choice, wanted))
        if of_volumes:
            layers.name_paths(conn, plan.domain, made)
    taken = read.snapshot(conn, made)
    notes = (*plan.notes, *(() if plan.guest.running else layers.protect(conn, taken)))
    try:
        snapshot_state.save(conn, plan.domain, taken)
    except errors.OperationFailed as exc:
        notes = (*notes, f"its firmware variables and TPM state are not saved: {exc.text}")
    return Taken(made.getName(), notes)


def plan_create(conn: libvirt.virConnect, guest: str, wanted: SnapshotRequest) -> Taken:
    """What :func:`create` would do. Changes nothing."""
    plan = _plan(conn, guest, wanted)
    return Taken(plan.name, plan.notes)


def _plan(conn: libvirt.virConnect, guest: str, wanted: SnapshotRequest) -> _Plan:
    parts = {"name": values.label, "suffix": values.label, "description": values.text}
    for what, parse in parts.items():
        if getattr(wanted, what):
            parse(getattr(wanted, what), what)
    if str(wanted.name or "").lower() == str(guest).lower():
        raise errors.InvalidInput(
            f"a snapshot of {guest} cannot be called {wanted.name} like the guest itself"
        )
    domain, name = lookup(conn, guest), _name(guest, wanted)
    creation.require_complete(domain, "take a snapshot of")
    saved_memory.refuse(domain, "take a snapshot of")
    if "/" in name:
        raise errors.InvalidInput(f"a snapshot cannot be called {name}: its name has a slash")
    if len(os.fsencode(name)) > _LONGEST_NAME_BYTES:
        raise errors.InvalidInput(
            f"the name of a snapshot has at most {_LONGEST_NAME_BYTES} bytes: {name[:40]}... is "
            "longer"
        )
    tree, about = read.tree(conn, domain), read.guest(conn, domain)
    if name in tree:
        raise errors.AlreadyExists(f"a snapshot {name} of {guest} already exists")
    _refuse_without_disks(conn, about)
    rules.refuse_unknown(about)
    choice = rules.choose(about, tree, wanted.disk_only, wanted.quiesce)
    rules.refuse_name(name, choice)
    if not choice.external:
        inside.refuse_taken(conn, about.disks, name)
    disks = tuple(_layers(about, name, wanted.images_dir)) if choice.external else ()
    notes = [*_kind_notes(about, choice), *_room_notes(conn, domain, about, choice, disks)]
    return _Plan(
        domain, about, choice, name, disks, (*notes, *snapshot_state.unsaved(conn, domain))
    )


def _refuse_without_disks(conn: libvirt.virConnect, guest: rules.Guest) -> None:
    if conn.getType() == read.DRIVER and not guest.disks:
        raise errors.Unsupported(f"{guest.name} has no disk that it writes to: no snapshot of it")


def _kind_notes(guest: rules.Guest, choice: rules.Choice) -> Iterator[str]:
    if choice.why:
        yield f"it is external, as {choice.why}"
    if choice.why and guest.running:
        yield f"the memory is not in it: going back to it leaves {guest.name} shut off"


def _layers(guest: rules.Guest, name: str, images_dir: str | None) -> Iterator[tuple[str, str]]:
    """(target, path) of each layer for which libvirt finds no name: of a disk that is no plain
    file in the definition, or whose layer would have the name of another disk's."""
    named: set[str] = set()
    for disk in guest.disks:
        path = _layer_path(guest.name, disk, name, images_dir)
        by_libvirt = path not in named and disk.kind == "file"
        if path in named:
            path = f"{disk.path}.{name}"
        rules.refuse_layer(guest, path)
        named.add(path)
        if by_libvirt:
            continue
        if os.path.lexists(path):
            raise errors.AlreadyExists(f"{path} for the snapshot {name} already exists")
        yield disk.target, path


def _layer_path(guest: str, disk: rules.GuestDisk, name: str, images_dir: str | None) -> str:
    """Beside the disk's file, by the name that libvirt gives it; of what is no file in the folder
    of images."""
    if disk.path and (disk.regular or disk.kind == "file"):
        return f"{os.path.splitext(disk.path)[0]}.{name}"
    if not images_dir:
        raise errors.InvalidInput(
            f"disk {disk.target} of {guest} is no file, and virt:images names no folder for what "
            "is written after the snapshot"
        )
    mounted.refuse_unmounted(images_dir)
    return os.path.join(images_dir, f"{guest}_{disk.target}.{name}")


def _room_notes(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    guest: rules.Guest,
    choice: rules.Choice,
    layered: tuple[tuple[str, str], ...],
) -> Iterator[str]:
    """What its layers may grow to, where there is less room. Raises Refused when there is not even
    the room that it needs at once."""
    if not connection.is_local(conn):
        return
    for path, needed in rules.room(guest, choice).items():
        rules.refuse_without_room(guest.name, path, needed, _free(path))
    if not choice.external:
        return
    elsewhere = dict(layered)
    grow: dict[str, int] = {}
    for disk in guest.disks:
        place = elsewhere.get(disk.target) or disk.path
        if place:
            folder = os.path.dirname(files.real(place))
            grow[folder] = grow.get(folder, 0) + _capacity(conn, domain, disk)
    for folder, most in grow.items():
        if _free(folder) < most:
            yield (
                f"what is written from now on may grow to {human_bytes(most)}, and {folder} has "
                f"{human_bytes(_free(folder))} free"
            )


def _capacity(conn: libvirt.virConnect, domain: libvirt.virDomain, disk: rules.GuestDisk) -> int:
    """What a disk may grow to. Of a guest that is off libvirt does not look into pools."""
    if disk.kind == "volume" and disk.path:
        return int(conn.storageVolLookupByPath(disk.path).info()[1])
    return int(domain.blockInfo(disk.target)[0])


def _free(path: str) -> int:
    """The bytes that are free on the file system of a path."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    try:
        found = os.statvfs(folder)
    except OSError as exc:
        raise errors.OperationFailed(f"{folder}: {exc.strerror}") from exc
    return found.f_bavail * found.f_frsize


def delete(
    conn: libvirt.virConnect,
    guest: str,
    names: Collection[str],
    everything: bool = False,
    children: bool = False,
    unused: Collection[str] = (),
) -> dict[str, Any]:
    """Deletes snapshots. Returns what was deleted and what is left, by name.

    names: each must exist, or nothing is deleted. everything: all that there are.
    children: with all that were made on top of them. unused: see needs.refuse.
    """
    domain, tree, order = _doomed(conn, guest, names, everything, children)
    there = _by_name(domain)
    needs.refuse(conn, domain, _merged(conn, domain, there, order), unused)
    if order:
        _let_write(conn, domain)
    deleted = {}
    for name in order:
        there[name].delete(0)
        snapshot_state.forget(domain.UUIDString(), [tree[name]])
        deleted[name] = describe(tree[name])
    return {"available": {guest: _described(conn, domain)}, "deleted": deleted}


def plan_delete(
    conn: libvirt.virConnect,
    guest: str,
    names: Collection[str],
    everything: bool = False,
    children: bool = False,
) -> tuple[dict[str, Described], needs.Stake]:
    """(what it would delete, the snapshot_needs.Stake). Changes nothing."""
    domain, tree, order = _doomed(conn, guest, names, everything, children)
    found = {name: describe(tree[name]) for name in order}
    stake = _merged(conn, domain, _by_name(domain), order)
    needs.refuse(conn, domain, stake, stake.shared)
    return found, stake


def _doomed(
    conn: libvirt.virConnect, guest: str, names: Collection[str], everything: bool, children: bool
) -> tuple[libvirt.virDomain, Tree, list[str]]:
    """(the domain, its snapshots, the names of those that go, in the order to delete them)."""
    domain = lookup(conn, guest)
    if not names and not everything:
        raise errors.InvalidInput(
            f"name the snapshots of {guest} to delete, or all=True for every one"
        )
    tree = read.tree(conn, domain)
    doomed = {*(tree.newest_first() if everything else rules.known(guest, names, tree))}
    doomed = tree.with_children(doomed) if children else doomed
    order = rules.deletion_order(read.guest(conn, domain), tree, doomed)
    if any(tree[name].external for name in order):
        saved_memory.refuse(domain, "delete snapshots of")
    changed = [tree[name] for name in order]
    read.refuse_without_disks(conn, domain, changed, "delete snapshots of")
    return domain, tree, order


def _by_name(domain: libvirt.virDomain) -> dict[str, libvirt.virDomainSnapshot]:
    return {one.getName(): one for one in read.oldest_first(domain)}


def _merged(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    there: dict[str, libvirt.virDomainSnapshot],
    doomed: Collection[str],
) -> needs.Stake:
    changed = needs.merged(there[name] for name in doomed)
    return needs.of(conn, domain, changed, "virt.delete_snapshots")


def _let_write(conn: libvirt.virConnect, domain: libvirt.virDomain) -> None:
    """Lets the guest's own disks be written to: what is above them is merged into them.

    One that came here by an early migration, from below a snapshot, is read-only like an image.
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
) -> Reverted:
    """Puts the guest back.

    name: None for the one before the current snapshot.
    cleanup: delete every snapshot that is newer or was made on top of it.
    unused: see needs.refuse. admission_config: None where the host is not asked for room.
    """
    domain, tree, plan = _wanted(conn, guest, name, cleanup)
    _admit(conn, domain, tree[plan.name], admission_config)
    there, target = _by_name(domain), tree[plan.name]
    needs.refuse(conn, domain, _put_back(conn, domain, there, tree, plan), unused)
    _refuse_needed(conn, domain, target)
    notes = [*_revert_notes(conn, domain, tree, target), *rules.left_inside(guest, tree, plan)]
    before = metadata.of_domain(domain)
    left = list(plan.deleted)
    if target.external:
        if not _begins_anew(conn):
            with checkpoints.aside(domain):
                returning.empty_drives(conn, domain, there[plan.name])
        left = _revert_layers(conn, domain, (target, there), tree, left, unused)
    else:
        checkpoints.remove(conn, domain)
        returning.empty_drives(conn, domain, there[plan.name])
        domain.revertToSnapshot(there[plan.name], 0)
    _keep_record(domain, before)
    snapshot_state.restore(conn, domain, target)
    _drop(conn, domain, [tree[one] for one in left], unused)
    snapshot_state.forget(domain.UUIDString(), [tree[one] for one in plan.deleted])
    late = guest_clock.set_now(domain) if target.memory != "no" else None
    notes += [late] if late else []
    return Reverted(plan.name, plan.deleted, tuple(notes))


def plan_revert(
    conn: libvirt.virConnect,
    guest: str,
    name: str | None = None,
    cleanup: bool = False,
    admission_config: AdmissionConfig | None = None,
) -> tuple[Reverted, needs.Stake]:
    """(what it would do, the needs.Stake). Changes nothing."""
    domain, tree, plan = _wanted(conn, guest, name, cleanup)
    _admit(conn, domain, tree[plan.name], admission_config)
    target = tree[plan.name]
    checkpoints.refuse_foreign(domain)
    late = guest_clock.foreseen(domain) if target.memory != "no" else None
    lasting = rules.left_inside(guest, tree, plan)
    notes = (*_revert_notes(conn, domain, tree, target), *lasting, *([late] if late else []))
    stake = _put_back(conn, domain, _by_name(domain), tree, plan)
    needs.refuse(conn, domain, stake, stake.shared)
    _refuse_needed(conn, domain, target)
    return Reverted(plan.name, plan.deleted, notes), stake


def _admit(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    target: Snapshot,
    admission_config: AdmissionConfig | None,
) -> None:
    """Raises NoRoom where a guest that is off would be started with the snapshot's memory, and the
    host has promised its own to others."""
    if admission_config and target.state in returning.RUNS and target.memory != "no":
        with admission_config.lock():
            admission.starting(conn, admission_config, domain)


def _put_back(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    there: dict[str, libvirt.virDomainSnapshot],
    tree: Tree,
    plan: rules.RevertPlan,
) -> needs.Stake:
    """What is changed: the layers that begin anew or go, and what is next below those."""
    changed = needs.merged(there[one] for one in plan.deleted)
    if tree[plan.name].external:
        gone = [there[one] for one in (plan.name, *tree.descendants(plan.name))]
        changed |= needs.layers(gone) | needs.in_use(domain, there[plan.name])
    return needs.of(conn, domain, changed, "virt.revert")


def _refuse_needed(conn: libvirt.virConnect, domain: libvirt.virDomain, target: Snapshot) -> None:
    """Raises Refused when something else of this host needs a disk in which an internal snapshot
    is put back, such as an image that is based on it."""
    needs.refuse(conn, domain, needs.Stake("virt.revert", set(target.inside)), doubts=False)


def _wanted(
    conn: libvirt.virConnect, guest: str, name: str | None, cleanup: bool
) -> tuple[libvirt.virDomain, Tree, rules.RevertPlan]:
    domain = lookup(conn, guest)
    creation.require_complete(domain, "revert")
    saved_memory.refuse(domain, "revert")
    move_journal.may_start(domain)
    tree = read.tree(conn, domain)
    plan = rules.revert(guest, tree, str(name) if name else None, cleanup)
    changed = [tree[one] for one in (plan.name, *plan.deleted)]
    read.refuse_without_disks(conn, domain, changed, "revert", next_start=True)
    _refuse_failing(conn, domain, tree, plan.name)
    if read.compares(conn) and tree[plan.name].state in returning.RUNS:
        lost = returning.lost_media(conn, _by_name(domain)[plan.name])
        rules.refuse_left(guest, tree, plan, lost)
    return domain, tree, plan


def _refuse_failing(
    conn: libvirt.virConnect, domain: libvirt.virDomain, tree: Tree, name: str
) -> None:
    """Raises Refused, Unsupported where libvirt, or we for it, would fail when the guest is off or
    a disk is changed already."""
    inside.refuse(conn, domain, tree[name])
    there = _by_name(domain)
    if tree[name].external and _begins_anew(conn):
        for one in (name, *tree.descendants(name)):
            layers.layers(there[one])
    else:
        returning.refuse_without_networks(conn, domain, there[name], tree[name])


def _begins_anew(conn: libvirt.virConnect) -> bool:
    """Whether libvirt cannot go back to an external snapshot itself."""
    return bool(conn.getType() == read.DRIVER and conn.getLibVersion() < _GOES_BACK)


def _revert_notes(
    conn: libvirt.virConnect, domain: libvirt.virDomain, tree: Tree, target: Snapshot
) -> list[str]:
    """What is not as it was on the day of the snapshot, or goes with what came later."""
    notes = snapshot_state.not_restored(domain, target)
    if target.external and _begins_anew(conn):
        return notes  # its layers begin anew, and the definition stays
    for drive, path in returning.lost_media(conn, _by_name(domain)[target.name]).items():
        notes.append(f"{drive} is empty then: its medium {path} is not there any more")
    known = {disk.target for disk in target.disks}
    layered = set[str]().union(*(one.layers for one in tree))
    root = files.trees(domain)[-1]
    for disk in Domain(root).disks:
        place = disk.source and (disk.source.file or disk.source.dev or disk.source.volume)
        if known and disk.target not in known and place and place not in layered:
            notes.append(
                f"{disk.target} came after {target.name} and is detached: {place} stays where it is"
            )
    return notes


def _keep_record(domain: libvirt.virDomain, before: GuestRecord) -> None:
    """See metadata.reverted."""
    now = metadata.of_domain(domain)
    if not (now and before):
        return
    record = metadata.reverted(before, now)
    if record.tostring() != now.tostring():
        metadata.write(domain, record)


def _drop(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    doomed: Collection[Snapshot],
    unused: Collection[str],
) -> None:
    """Deletes snapshots on which the guest does not stand after it was reverted: nothing is merged
    into the files that it has now."""
    there = _by_name(domain)
    now = {disk.place for disk in read.guest(conn, domain).disks}
    for one in doomed:
        flags = 0
        if now and (one.external or not one.inside <= now):
            flags = libvirt.VIR_DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY
            layers.remove(conn, one.layers - now, unused, domain.UUIDString())
        there[one.name].delete(flags)


def _revert_layers(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    to: tuple[Snapshot, dict[str, libvirt.virDomainSnapshot]],
    tree: Tree,
    newer: list[str],
    unused: Collection[str],
) -> list[str]:
    """Goes back to an external snapshot; the names that are still to be deleted. to: it, and all
    of libvirt's by name."""
    target, there = to
    checkpoints.refuse_foreign(domain)
    if not _begins_anew(conn):
        if target.of_layers_alone:
            layers.stop(domain)
        try:
            domain.revertToSnapshot(there[target.name], 0)
            return newer
        except libvirt.libvirtError as exc:
            if exc.get_error_code() not in _CANNOT:
                raise
    above = [name for name in tree.newest_first() if name in tree.descendants(target.name)]
    layers.revert(conn, domain, there[target.name], [there[name] for name in above], unused)
    return [name for name in newer if name not in above]


def describe(one: Snapshot) -> Described:
    """One snapshot as plain data: see ``virt.list_snapshots``."""
    return {
        "name": one.name,
        "created": datetime.datetime.fromtimestamp(one.created).isoformat(" "),
        "running": one.state == "running",
        "current": one.current,
        "state": one.state,
        "parent": one.parent,
        "description": one.description,
        "external": one.external,
    }


def _described(conn: libvirt.virConnect, domain: libvirt.virDomain) -> list[Described] | str:
    return [describe(one) for one in read.tree(conn, domain)] or NONE


def _described_or_error(
    conn: libvirt.virConnect, domain: libvirt.virDomain
) -> list[Described] | str | dict[str, str]:
    try:
        return _described(conn, domain)
    except libvirt.libvirtError as exc:
        return {"error": str(translate(exc))}


def _name(guest: str, wanted: SnapshotRequest) -> str:
    name = str(wanted.name or "") or f"{guest}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    return f"{name}-{wanted.suffix}" if wanted.suffix else name


def _flags(choice: rules.Choice, wanted: SnapshotRequest) -> int:
    flags = 0
    if choice.external:
        flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
        flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_ATOMIC
    if wanted.quiesce:
        flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_QUIESCE
    return flags
