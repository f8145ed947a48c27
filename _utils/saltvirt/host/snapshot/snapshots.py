"""Snapshots of a guest: internal (in its disks) and external (a new layer of files)."""

from __future__ import annotations

import datetime
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host.connection import libvirt, translate
from saltvirt.host.domain import metadata
from saltvirt.host.domain.lookup import lookup
from saltvirt.host.snapshot import checkpoints, layers, needs
from saltvirt.host.storage import files
from saltvirt.spec import values
from saltvirt.xml.snapshot import Snapshot

if TYPE_CHECKING:
    from saltvirt.xml.metadata import GuestRecord

# what Salt's users know for "there is none"
NONE = "N/A"
# VIR_ERR_CONFIG_UNSUPPORTED and VIR_ERR_OPERATION_UNSUPPORTED
_CANNOT = (67, 84)


# a guest's snapshots by name, the newest first
Snapshots = dict[str, "libvirt.virDomainSnapshot"]


class Described(TypedDict):
    """One snapshot; see ``virt.list_snapshots``."""

    name: str | None
    created: str
    running: bool
    current: bool
    state: str | None
    parent: str | None
    description: str | None
    external: bool


@dataclass(frozen=True)
class SnapshotRequest:
    """A snapshot to make. name: None for the guest's name with the time."""

    name: str | None = None
    suffix: str | None = None
    description: str | None = None
    disk_only: bool = False
    quiesce: bool = False


def listing(conn: libvirt.virConnect, name: str | None = None) -> dict[str, Any]:
    """Snapshots by guest name; of one guest, or of all: see ``virt.list_snapshots``."""
    if name is not None:
        return {str(name): _described(lookup(conn, name))}
    return {domain.name(): _described_or_error(domain) for domain in conn.listAllDomains()}


def create(conn: libvirt.virConnect, guest: str, wanted: SnapshotRequest) -> str:
    """Makes the snapshot and returns its name."""
    for what in ("name", "suffix", "description"):
        if getattr(wanted, what):
            values.text(getattr(wanted, what), what)
    if str(wanted.name or "").lower() == str(guest).lower():
        raise errors.InvalidInput(
            f"a snapshot of {guest} cannot be called {wanted.name} like the guest itself"
        )
    if wanted.quiesce and not wanted.disk_only:
        raise errors.InvalidInput("quiesce is for snapshots with disk_only=True")
    domain = lookup(conn, guest)
    description = str(wanted.description) if wanted.description else None
    document = Snapshot(name=_name(guest, wanted), description=description)
    with checkpoints.aside(domain):
        made = domain.snapshotCreateXML(document.tostring(), _flags(wanted))
    return made.getName()


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
    domain, there, doomed = _doomed(conn, guest, names, everything, children)
    needs.refuse(conn, domain, _merged(conn, domain, there, doomed), unused)
    _let_write(conn, domain)
    deleted = {}
    for name in (name for name in there if name in doomed):
        description = describe(there[name])
        there[name].delete(0)
        deleted[name] = description
    return {"available": {guest: _described(domain)}, "deleted": deleted}


def plan_delete(
    conn: libvirt.virConnect,
    guest: str,
    names: Collection[str],
    everything: bool = False,
    children: bool = False,
) -> tuple[dict[str, Described], needs.Stake]:
    """(what it would delete, the snapshot_needs.Stake). Changes nothing."""
    domain, there, doomed = _doomed(conn, guest, names, everything, children)
    found = {name: describe(there[name]) for name in there if name in doomed}
    return found, _merged(conn, domain, there, doomed)


def _doomed(
    conn: libvirt.virConnect, guest: str, names: Collection[str], everything: bool, children: bool
) -> tuple[libvirt.virDomain, Snapshots, Collection[str]]:
    """(the domain, its snapshots by name with the newest first, the names of those that go)."""
    domain = lookup(conn, guest)
    if not names and not everything:
        raise errors.InvalidInput(
            f"name the snapshots of {guest} to delete, or all=True for every one"
        )
    there = {snapshot.getName(): snapshot for snapshot in _newest_first(domain)}
    doomed = list(there) if everything else _known(guest, names, there)
    return domain, there, _with_children(doomed, there) if children else doomed


def _merged(
    conn: libvirt.virConnect, domain: libvirt.virDomain, there: Snapshots, doomed: Collection[str]
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
) -> tuple[str, list[str]]:
    """Puts the guest back. Returns the snapshot's name and the names deleted after it.

    name: None for the one before the current snapshot.
    cleanup: delete every snapshot that is newer or was made on top of it.
    unused: see needs.refuse.
    """
    domain, there, name, newer = _wanted(conn, guest, name, cleanup)
    needs.refuse(conn, domain, _put_back(conn, domain, there, name, newer), unused)
    before = metadata.of_domain(domain)
    if describe(there[name])["external"]:
        left = _revert_layers(conn, domain, (name, there), newer, unused)
    else:
        checkpoints.remove(conn, domain)
        domain.revertToSnapshot(there[name], 0)
        left = newer
    _keep_marks(domain, before)
    for doomed in left:
        there[doomed].delete(0)
    return name, newer


def plan_revert(
    conn: libvirt.virConnect, guest: str, name: str | None = None, cleanup: bool = False
) -> tuple[str, list[str], needs.Stake]:
    """(the snapshot's name, the names deleted after it, the snapshot_needs.Stake). Changes
    nothing."""
    domain, there, name, newer = _wanted(conn, guest, name, cleanup)
    return name, newer, _put_back(conn, domain, there, name, newer)


def _put_back(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    there: Snapshots,
    name: str,
    newer: list[str],
) -> needs.Stake:
    """What is changed: the layers that begin anew or go, and where newer ones are merged."""
    changed = needs.merged(there[one] for one in newer)
    if describe(there[name])["external"]:
        gone = [there[one] for one in (name, *_above(name, there))]
        changed |= needs.layers(gone) | needs.in_use(domain, there[name])
    return needs.of(conn, domain, changed, "virt.revert")


def _wanted(
    conn: libvirt.virConnect, guest: str, name: str | None, cleanup: bool
) -> tuple[libvirt.virDomain, Snapshots, str, list[str]]:
    """(the domain, its snapshots by name, the one to go back to, the names that are deleted)."""
    domain = lookup(conn, guest)
    there = {snapshot.getName(): snapshot for snapshot in _newest_first(domain)}
    if not there:
        raise errors.NotFound(f"{guest} has no snapshots")
    name = _known(guest, [name], there)[0] if name else _previous(guest, there)
    newer = _newer(name, there) if cleanup else []
    if describe(there[name])["external"]:
        _nothing_above(name, there, newer)
    return domain, there, name, newer


def _keep_marks(domain: libvirt.virDomain, before: GuestRecord) -> None:
    """See metadata.reverted."""
    now = metadata.of_domain(domain)
    if not (now and before):
        return
    record = metadata.reverted(before, now)
    if record.tostring() != now.tostring():
        metadata.write(domain, record)


def _nothing_above(name: str, there: Snapshots, newer: list[str]) -> None:
    """Raises InvalidInput when going back would lose snapshots that are to stay."""
    above = _above(name, there)
    if set(above) - set(newer):
        raise errors.InvalidInput(
            f"{', '.join(above)} would be lost: made on top of {name}; cleanup=True deletes them"
        )


def _above(name: str, there: Snapshots) -> list[str]:
    return [key for key in there if key in set(_descendants(name, there))]


def _revert_layers(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    named: tuple[str, Snapshots],
    newer: list[str],
    unused: Collection[str],
) -> list[str]:
    """Goes back to an external snapshot; the names that are still to be deleted."""
    name, there = named
    above = _above(name, there)
    try:
        domain.revertToSnapshot(there[name], 0)
        return newer
    except libvirt.libvirtError as exc:
        if exc.get_error_code() not in _CANNOT:
            raise
    layers.revert(conn, domain, there[name], [there[key] for key in above], unused)
    return [key for key in newer if key not in above]


def describe(snapshot: libvirt.virDomainSnapshot) -> Described:
    """One snapshot as plain data: see ``virt.list_snapshots``."""
    root = ElementTree.fromstring(snapshot.getXMLDesc(0))
    created = datetime.datetime.fromtimestamp(_created(root))
    parts = [root.find("memory"), *root.findall("disks/disk")]
    return {
        "name": root.findtext("name"),
        "created": created.isoformat(" "),
        "running": root.findtext("state") == "running",
        "current": snapshot.isCurrent() == 1,
        "state": root.findtext("state"),
        "parent": root.findtext("parent/name"),
        "description": root.findtext("description"),
        "external": any(p is not None and p.get("snapshot") == "external" for p in parts),
    }


def _created(root: ElementTree.Element) -> int:
    """When a snapshot was made, in seconds since 1970: no clock is put back in it."""
    return int(root.findtext("creationTime", "0"))


def _described(domain: libvirt.virDomain) -> list[Described] | str:
    return [describe(snapshot) for snapshot in _oldest_first(domain)] or NONE


def _described_or_error(domain: libvirt.virDomain) -> list[Described] | str | dict[str, str]:
    try:
        return _described(domain)
    except libvirt.libvirtError as exc:
        return {"error": str(translate(exc))}


def _name(guest: str, wanted: SnapshotRequest) -> str:
    name = str(wanted.name or "") or f"{guest}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    return f"{name}-{wanted.suffix}" if wanted.suffix else name


def _flags(wanted: SnapshotRequest) -> int:
    flags = 0
    if wanted.disk_only:
        flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
        flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_ATOMIC
    if wanted.quiesce:
        flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_QUIESCE
    return flags


def _oldest_first(domain: libvirt.virDomain) -> list[libvirt.virDomainSnapshot]:
    """Every snapshot, each after the one that it was made on top of."""
    return domain.listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL)


def _newest_first(domain: libvirt.virDomain) -> Iterator[libvirt.virDomainSnapshot]:
    return reversed(_oldest_first(domain))


def _known(guest: str, names: Iterable[str], there: Snapshots) -> list[str]:
    missing = [str(name) for name in names if str(name) not in there]
    if missing:
        raise errors.NotFound(
            f"{guest} has no snapshot {', '.join(missing)}; it has {', '.join(there) or 'none'}"
        )
    return [str(name) for name in names]


def _descendants(name: str, there: Snapshots) -> list[str]:
    return [child.getName() for child in there[name].listAllChildren(
        libvirt.VIR_DOMAIN_SNAPSHOT_LIST_DESCENDANTS
    )]  # fmt: skip


def _with_children(names: Iterable[str], there: Snapshots) -> set[str]:
    return {*names, *(child for name in names for child in _descendants(name, there))}


def _newer(name: str, there: Snapshots) -> list[str]:
    """Names made after this one, or on top of it, in the order to delete them."""
    created = {
        key: _created(ElementTree.fromstring(snapshot.getXMLDesc(0)))
        for key, snapshot in there.items()
    }
    above = set(_descendants(name, there))
    return [key for key in there if key in above or created[key] > created[name]]


def _previous(guest: str, there: Snapshots) -> str:
    current = next((key for key, snapshot in there.items() if snapshot.isCurrent()), None)
    parent = describe(there[current])["parent"] if current else None
    if parent is None:
        raise errors.NotFound(
            f"{guest} has no snapshot before the current one; name one of: {', '.join(there)}"
        )
    return parent
