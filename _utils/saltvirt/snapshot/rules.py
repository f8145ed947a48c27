"""Rules for snapshots of a guest, as pure decisions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.snapshot.tree import EXTERNAL, INTERNAL, SnapshotNode, SnapshotTree
from saltvirt.units import human_bytes

# QEMU first compares a snapshot's name with the IDs of all snapshots, which are numbered from 1
_ID = re.compile("[1-9][0-9]{0,5}")
# the monitor of QEMU quotes these
_QUOTED = '"\\'
# size of an empty overlay with its first clusters
_LAYER_BYTES = 1024**2
# size of the device state that is saved with the guest's memory
_DEVICES_BYTES = 64 * 1024**2


@dataclass(frozen=True)
class WritableDisk:
    """A writable disk of a guest. target: for example ``vda``. kind: libvirt's type (``file``,
    ``block``, ``volume``, ``network``). format: for example ``qcow2``. path: the file or device on
    this host, or None. regular: path is a regular file. location: as ``base`` of tree.SnapshotDisk.
    shareable: other guests may write to it, too."""

    target: str
    kind: str
    format: str
    path: str | None = None
    regular: bool = True
    location: str | None = None
    shareable: bool = False


@dataclass(frozen=True)
class SnapshotGuest:
    """The properties of a guest that snapshots depend on. memory_kib: its current memory; memory
    taken by the balloon is not part of a snapshot. variables: it has firmware with variables. tpm:
    it has an emulated TPM. folders: names of folders of the host that it has by virtiofs, whose
    state QEMU cannot save. disks: its writable disks. current_sources: {target: location} of all
    its disks and drives while it runs; None if libvirt does not compare them with those of a
    snapshot."""

    name: str
    running: bool = False
    memory_kib: int = 0
    variables: bool = False
    tpm: bool = False
    folders: tuple[str, ...] = ()
    disks: tuple[WritableDisk, ...] = ()
    current_sources: Mapping[str, str | None] | None = None


@dataclass(frozen=True)
class SnapshotKind:
    """The kind of a new snapshot. reason: the property of the guest that requires it, or None."""

    kind: str
    reason: str | None = None

    @property
    def external(self) -> bool:
        return self.kind == EXTERNAL


def choose(
    guest: SnapshotGuest, tree: SnapshotTree, disk_only: bool | None = None, quiesce: bool = False
) -> SnapshotKind:
    """The SnapshotKind of the guest's next snapshot. disk_only: True: external; False: internal;
    None: depends on the guest. Raises InvalidInput, Refused, Unsupported."""
    if quiesce and disk_only is False:
        raise errors.InvalidInput("quiesce is for snapshots with disk_only=True")
    if quiesce and not guest.running:
        raise errors.InvalidInput(f"quiesce: {guest.name} is not running: leave quiesce out")
    shared = [disk.target for disk in guest.disks if disk.shareable]
    if shared:
        raise errors.Unsupported(
            f"disk {', '.join(shared)} of {guest.name} is shareable: libvirt cannot take a "
            "snapshot of a guest with such a disk"
        )
    external_reason = next(_external_only(guest), None)
    if disk_only is False and external_reason:
        raise errors.Unsupported(
            f"{guest.name} cannot have an internal snapshot: {external_reason}; leave disk_only out"
        )
    kinds = {snapshot.kind for snapshot in tree}
    reason = external_reason
    if not external_reason and EXTERNAL in kinds:
        reason = f"its snapshots are external ({_names(tree, EXTERNAL)})"
    external = disk_only if disk_only is not None else bool(quiesce or reason)
    kind = EXTERNAL if external else INTERNAL
    if kinds - {kind}:
        [mixed] = kinds - {kind}
        raise errors.Refused(
            f"{guest.name} has {mixed} snapshots ({_names(tree, mixed)}), and an {kind} one in "
            "addition to them would be lost or corrupted by a revert to one of them: delete those "
            "first"
            + ("" if external_reason else ", or leave disk_only out")
            + (f" ({external_reason})" if external_reason else "")
        )
    if external:
        _refuse_servers(guest)
    return SnapshotKind(kind, reason if external and disk_only is None and not quiesce else None)


def refuse_name(name: str, choice: SnapshotKind) -> None:
    """Raise InvalidInput for a name by which QEMU could not find an internal snapshot again."""
    if choice.external:
        return
    if _ID.fullmatch(name):
        raise errors.InvalidInput(
            f"an internal snapshot cannot have the name {name}: QEMU would confuse it "
            f"with the snapshot of that ID; use a name such as snapshot-{name}"
        )
    if set(name) & set(_QUOTED):
        raise errors.InvalidInput(
            f"an internal snapshot cannot have the name {name}: QEMU cannot find a name "
            "with a quote or a backslash"
        )


def refuse_unknown(guest: SnapshotGuest) -> None:
    """Raise Refused for a volume whose path, and therefore required space, is unknown."""
    for disk in guest.disks:
        if disk.kind == "volume" and disk.path is None:
            raise errors.Refused(
                f"disk {disk.target} of {guest.name} is the volume {disk.location}, which this "
                "host cannot access now: start its storage pool first"
            )


def refuse_layer(guest: SnapshotGuest, path: str) -> None:
    """Raise InvalidInput for the path of an overlay that libvirt would create elsewhere: it doubles
    commas when qemu-img creates the overlays of a guest that is off."""
    if "," in path and not guest.running:
        raise errors.InvalidInput(
            f"libvirt cannot create {path} while {guest.name} is off, because the path has a "
            f"comma: use a name without comma, or start {guest.name} first"
        )


def _external_only(guest: SnapshotGuest) -> Iterator[str]:
    """The reasons why the guest cannot have an internal snapshot."""
    if guest.variables:
        yield "it boots with UEFI firmware (pflash)"
    if guest.running and guest.folders:
        yield f"its memory cannot be saved with a folder of the host ({', '.join(guest.folders)})"
    for disk in guest.disks:
        if disk.format != "qcow2":
            yield f"its disk {disk.target} is {disk.format}, not qcow2"
        elif disk.path is None or not disk.regular:
            yield f"its disk {disk.target} is not a file"


def _refuse_servers(guest: SnapshotGuest) -> None:
    """Refuse network disks of a guest that is off: libvirt creates overlays on them only while the
    guest runs."""
    for disk in guest.disks:
        if disk.kind == "network" and not guest.running:
            raise errors.Unsupported(
                f"disk {disk.target} of {guest.name} is on a server: libvirt takes a snapshot of "
                "such a disk only while the guest runs"
            )


def _names(tree: SnapshotTree, kind: str) -> str:
    return ", ".join(snapshot.name for snapshot in tree if snapshot.kind == kind)


def required_bytes(guest: SnapshotGuest, choice: SnapshotKind) -> dict[str, int]:
    """Path of a disk to the bytes that the snapshot immediately needs on its file system."""
    files = [disk.path for disk in guest.disks if disk.path and disk.regular]
    if choice.external:
        return dict.fromkeys(files, _LAYER_BYTES)
    memory = guest.memory_kib * 1024 + _DEVICES_BYTES if guest.running else _LAYER_BYTES
    return dict.fromkeys(files[:1], memory)  # the memory is stored in the first


def refuse_without_room(guest: str, path: str, needed: int, free: int) -> None:
    """Raise Refused if the file system of a path does not have enough space for a snapshot."""
    if free < needed:
        raise errors.Refused(
            f"a snapshot of {guest} needs {human_bytes(needed)} in the file system of {path}, "
            f"where {human_bytes(free)} are free: free some space"
        )


@dataclass(frozen=True)
class RevertPlan:
    """name: the snapshot to revert to. deleted: snapshots that are deleted afterwards, in this
    order."""

    name: str
    deleted: tuple[str, ...] = ()


def check_names(guest: str, names: Collection[str], tree: SnapshotTree) -> list[str]:
    """The names. Raises NotFound if the guest does not have one of them."""
    missing = [str(name) for name in names if str(name) not in tree]
    if missing:
        existing = ", ".join(tree.newest_first()) or "none"
        raise errors.NotFound(f"{guest} has no snapshot {', '.join(missing)}; it has {existing}")
    return [str(name) for name in names]


def previous(guest: str, tree: SnapshotTree) -> str:
    """The snapshot before the current one. Raises NotFound."""
    current = tree.current
    parent = current.parent if current else None
    if parent is None or parent not in tree:
        raise errors.NotFound(
            f"{guest} has no snapshot before the current one; name one of: "
            f"{', '.join(tree.newest_first())}"
        )
    return parent


def revert(
    guest: str, tree: SnapshotTree, name: str | None = None, cleanup: bool = False
) -> RevertPlan:
    """The RevertPlan. name: None: the snapshot before the current one. cleanup: delete all newer
    snapshots. Raises NotFound, and InvalidInput if other snapshots would be lost."""
    if not len(tree):
        raise errors.NotFound(f"{guest} has no snapshots")
    name = check_names(guest, [name], tree)[0] if name else previous(guest, tree)
    doomed = invalidated(tree, name)
    if doomed and not cleanup:
        raise errors.InvalidInput(
            f"{', '.join(_ordered(tree, doomed))} would be lost: they are based on {name}; "
            "cleanup=True deletes them"
        )
    return RevertPlan(name, tuple(_ordered(tree, doomed | newer(tree, name)) if cleanup else ()))


def _ordered(tree: SnapshotTree, names: Collection[str]) -> list[str]:
    return [name for name in tree.newest_first() if name in names]


def newer(tree: SnapshotTree, name: str) -> set[str]:
    """Snapshots that were taken after this one, or are based on it. Its ancestors are older,
    even if the clock was set back in between."""
    created_at = tree[name].created
    later = {snapshot.name for snapshot in tree if snapshot.created > created_at} - tree.ancestors(
        name
    )
    return later | tree.descendants(name)


def invalidated(tree: SnapshotTree, name: str) -> set[str]:
    """Snapshots that a revert to this one invalidates.

    A revert changes files: an internal snapshot is restored inside the disk's file, the overlays of
    an external one are created again. Snapshots that depend on such a file would be a mixture of
    two states.
    """
    target = tree[name]
    changed = target.inside | target.layers
    lost_names = set()
    for snapshot in tree:
        stands_on = set[str]().union(*map(tree.below, snapshot.layers | snapshot.inside))
        if stands_on & changed or (target.external and snapshot.inside & target.layers):
            lost_names.add(snapshot.name)
    descendants = tree.descendants(name)
    above = {child for child in descendants if target.external or tree[child].external}
    return (lost_names | above) - {name}


def deletion_order(guest: SnapshotGuest, tree: SnapshotTree, doomed: Collection[str]) -> list[str]:
    """The names in an order in which libvirt can delete all of them.

    Raises Refused, with what to do first, if there is no such order; nothing may be deleted then.
    """
    stay, order = {snapshot.name: snapshot for snapshot in tree}, list[str]()
    disks, current = {disk.location for disk in guest.disks}, guest.current_sources
    while True:
        refusal = None
        for name in (name for name in tree.newest_first() if name in doomed and name in stay):
            reason = _obstacle(tree, stay, stay[name], disks, guest.running)
            reason = reason or _running_obstacle(stay[name], current)
            if reason is None:
                order.append(name)
                deleted = stay.pop(name)
                disks = _after_deletion(deleted, disks)
                current = current and {
                    to: next(iter(_after_deletion(deleted, {location})))
                    for to, location in current.items()
                }
                break
            refusal = f"snapshot {name} of {guest.name} cannot be deleted: {reason}"
        else:
            if refusal:
                raise errors.Refused(refusal)
            return order


def _after_deletion(deleted: SnapshotNode, disks: set[str | None]) -> set[str | None]:
    """The locations of the guest's disks after a snapshot is deleted: an overlay is merged into its
    backing file."""
    bases = {disk.layer: disk.base for disk in deleted.disks if disk.layer}
    return {bases.get(disk_place, disk_place) if disk_place else None for disk_place in disks}


def _changed_drive(
    snapshot: SnapshotNode, current: Mapping[str, str | None] | None
) -> tuple[str, str, str] | None:
    """(target, location at an internal snapshot, current location) of a disk or drive whose
    location has changed; None if there is none. current: see SnapshotGuest.current_sources."""
    for disk in snapshot.disks if current is not None and not snapshot.external else ():
        earlier_source = disk.base or "empty"
        current_source = (
            (current.get(disk.target) or "empty")
            if current and disk.target in current
            else "not there"
        )
        if current_source != earlier_source:
            return disk.target, earlier_source, current_source
    return None


def _running_obstacle(
    snapshot: SnapshotNode, current: Mapping[str, str | None] | None
) -> str | None:
    """The reason why libvirt can delete an internal snapshot only while the guest is off."""
    changed_drive = _changed_drive(snapshot, current)
    if changed_drive is None:
        return None
    target, earlier_source, current_source = changed_drive
    return (
        f"{target} was {earlier_source} at that time and is {current_source}: stop the guest first"
    )


def refuse_undeletable(
    guest: str, tree: SnapshotTree, plan: RevertPlan, emptied_targets: Collection[str] = ()
) -> None:
    """Raise Refused for a snapshot that is to be deleted after a revert, and that libvirt cannot
    delete from the guest that runs then. emptied_targets: targets of drives that are empty then."""
    target = tree[plan.name]
    current = {
        disk.target: None if disk.target in emptied_targets else disk.base for disk in target.disks
    }
    for snapshot in (tree[name] for name in plan.deleted):
        changed_drive = (
            _changed_drive(snapshot, current) if snapshot.inside <= target.inside else None
        )
        if changed_drive:
            drive, earlier_source, current_source = changed_drive
            raise errors.Refused(
                f"cannot revert {guest}: {snapshot.name} could not be deleted afterwards, as "
                f"{drive} is {current_source} at {plan.name} and {earlier_source} at "
                f"{snapshot.name}: stop {guest} and delete {snapshot.name} first"
            )


def internal_leftovers(guest: str, tree: SnapshotTree, plan: RevertPlan) -> list[str]:
    """Notes about snapshots that are deleted after a revert, but remain inside the guest's disks:
    they included more disks, and libvirt cannot delete a part of a snapshot."""
    current_files, notes = tree[plan.name].inside, []
    for snapshot in (
        tree[name] for name in plan.deleted if current_files and not tree[plan.name].external
    ):
        files = sorted(snapshot.inside & current_files)
        if not snapshot.external and files and not snapshot.inside <= current_files:
            notes.append(
                f"{snapshot.name} still takes up space in {', '.join(files)}: while {guest} is "
                f"off, `qemu-img snapshot -d {shlex.quote(snapshot.name)} FILE` deletes it"
            )
    return notes


def _obstacle(
    tree: SnapshotTree,
    stay: dict[str, SnapshotNode],
    snapshot: SnapshotNode,
    disks: set[str | None],
    running: bool,
) -> str | None:
    """The reason why libvirt cannot delete a snapshot now, or why another one would be lost."""
    if not snapshot.external:
        if running and disks and snapshot.inside and not snapshot.inside & disks:
            return "the guest runs on an overlay of the file that contains it: stop the guest first"
        return None
    for remaining in stay.values():
        if remaining.inside & snapshot.layers:
            return f"{remaining.name} is inside its overlay: delete {remaining.name}, too"
    parent = _parent(tree, stay, snapshot)
    if parent is not None and not parent.external:
        return f"its parent {parent.name} is internal: delete {parent.name}, too"
    above = [
        name for name in stay if name in tree.descendants(snapshot.name) and stay[name].external
    ]
    if above and not running:
        return (
            f"{', '.join(above)} would lose its backing file: delete "
            f"{', '.join(above)} with it, or start the guest first"
        )
    return None


def _parent(
    tree: SnapshotTree, stay: dict[str, SnapshotNode], snapshot: SnapshotNode
) -> SnapshotNode | None:
    """The nearest remaining ancestor, to which libvirt assigns the children of a deleted
    snapshot."""
    name = snapshot.parent
    while name is not None and name not in stay:
        name = tree[name].parent if name in tree else None
    return stay[name] if name is not None else None
