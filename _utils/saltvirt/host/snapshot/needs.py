"""Which files go, are merged or begin anew with snapshots, and who else could need them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import confidential, errors
from saltvirt.host.storage import bounded, chains, files, usage
from saltvirt.xml import tree

if TYPE_CHECKING:
    import libvirt

    from saltvirt.host.storage.shared import FileIdentity


@dataclass
class Stake:
    """changed: paths of what goes, is merged or begins anew. shared: identities of those of them
    that other hosts may have. own: those of the guest's other disks there: what is based on a
    changed one is no other user. verb: of the runner, which asks other hosts."""

    verb: str
    changed: set[str] = field(default_factory=set)
    shared: dict[str, FileIdentity] = field(default_factory=dict)
    own: dict[str, FileIdentity] = field(default_factory=dict)


def _place(node: ElementTree.Element) -> str | None:
    """Where an element with a source has its data: a path, or the name of what a server has."""
    source = node.find("source")
    if source is None:
        return None
    return source.get("file") or source.get("dev") or source.get("name")


def _external(snapshot: libvirt.virDomainSnapshot) -> list[ElementTree.Element]:
    """The disk elements of the layers that an external snapshot began."""
    root = ElementTree.fromstring(snapshot.getXMLDesc())
    return [disk for disk in root.iterfind("disks/disk") if disk.get("snapshot") == "external"]


def layers(snapshots: Iterable[libvirt.virDomainSnapshot]) -> set[str]:
    """Where the layers of external snapshots are."""
    places = (_place(disk) for one in snapshots for disk in _external(one))
    return {place for place in places if place}


def merged(snapshots: Iterable[libvirt.virDomainSnapshot]) -> set[str]:
    """The layers of external snapshots, and what is next below each: into that it is merged."""
    found = set()
    for path in layers(snapshots):
        found |= set(chains.read(path, "qcow2").paths[:2]) if path.startswith("/") else {path}
    return found


def in_use(domain: libvirt.virDomain, snapshot: libvirt.virDomainSnapshot) -> set[str]:
    """Where the disks lie now that a snapshot puts back: libvirt itself takes those away that no
    snapshot tells of."""
    targets = {disk.get("name") for disk in _external(snapshot)}
    disks = [disk for root in files.trees(domain) for disk in root.iterfind("devices/disk")]
    named = ((tree.child(disk, "target").get("dev"), _place(disk)) for disk in disks)
    return {place for target, place in named if place and targets & {target, place}}


def of(
    conn: libvirt.virConnect, domain: libvirt.virDomain, changed: Iterable[str], verb: str
) -> Stake:
    """The Stake of these paths."""
    found = Stake(verb, set(changed))
    if not changed:
        return found
    trees = files.trees(domain)
    own = {_place(disk) for root in trees for disk in root.iterfind("devices/disk")}
    for path in (
        {place for place in own if place} | layers(domain.listAllSnapshots()) | found.changed
    ):
        if usage.others_may_have(conn, path):
            places = found.shared if path in found.changed else found.own
            places[path] = usage.place(conn, path)
    return found


def refuse(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    stake: Stake,
    unused: Collection[str] = (),
    doubts: bool = True,
) -> None:
    """Raises Refused when another guest, or an image that no guest names, needs what is changed;
    or other hosts may, and it is not in ``unused``: of that all have said that nobody there does.
    doubts: also where it cannot be told who needs it.
    """
    paths = stake.changed
    if not paths:
        return
    used = usage.read(conn, domain.UUIDString(), beside=[p for p in paths if p.startswith("/")])
    trees = [ElementTree.fromstring(text) for text in usage.texts(domain)]
    named = [files.paths(root) | files.volume_paths(conn, root) for root in trees]
    own = {files.real(path) for path in set[str]().union(*named)}
    for path in sorted(paths):
        with bounded.noting() as silent:
            keys = usage.keys_of(conn, path)
        users = used.of(keys, own)
        if users:
            raise errors.Refused(
                f"{path} would be lost, and is needed by {confidential.listed(users)}"
            )
        if doubts and (silent or used.why(keys, own)):
            why = f"{', '.join(silent)} does not answer" if silent else used.why(keys, own)
            raise errors.Refused(f"{path} would be lost, and {why}")
        if path in stake.shared and path not in unused:
            raise errors.Refused(
                f"{path} would be lost, and other hosts may need it "
                f"({usage.others_may_have(conn, path)}): salt-run {stake.verb} {domain.name()} "
                "asks them"
            )
