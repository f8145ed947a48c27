"""Files that snapshot operations delete, merge or recreate, and their other users."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host.storage import chains, files, usage
from saltvirt.rights import confidential
from saltvirt.system import bounded_io
from saltvirt.xml import tree

if TYPE_CHECKING:
    import libvirt

    from saltvirt.host.storage.sharing import FileIdentity


@dataclass
class AffectedFiles:
    """Files that an operation affects.

    changed: paths that are deleted, merged or recreated. shared: identities of those that other
    hosts may use. own_files: identities of the guest's other shared disks, which do not count as
    other users. verb: the runner function that asks other hosts.
    """

    verb: str
    changed: set[str] = field(default_factory=set)
    shared: dict[str, FileIdentity] = field(default_factory=dict)
    own_files: dict[str, FileIdentity] = field(default_factory=dict)


def _data_source(node: ElementTree.Element) -> str | None:
    """Return the path, or the name on a server, of an element with a source."""
    source = node.find("source")
    if source is None:
        return None
    return source.get("file") or source.get("dev") or source.get("name")


def _external(snapshot: libvirt.virDomainSnapshot) -> list[ElementTree.Element]:
    """Return the disk elements of the layers of an external snapshot."""
    root = ElementTree.fromstring(snapshot.getXMLDesc())
    return [disk for disk in root.iterfind("disks/disk") if disk.get("snapshot") == "external"]


def layers(snapshots: Iterable[libvirt.virDomainSnapshot]) -> set[str]:
    """Return the paths of the layers of external snapshots."""
    places = (_data_source(disk) for vir_snapshot in snapshots for disk in _external(vir_snapshot))
    return {source for source in places if source}


def merged_paths(snapshots: Iterable[libvirt.virDomainSnapshot]) -> set[str]:
    """Return the layers of external snapshots, and the files below them into which they are
    merged."""
    paths = set()
    for path in layers(snapshots):
        paths |= set(chains.read(path, "qcow2").paths[:2]) if path.startswith("/") else {path}
    return paths


def current_sources(domain: libvirt.virDomain, snapshot: libvirt.virDomainSnapshot) -> set[str]:
    """Return the current sources of the disks that a snapshot reverts.

    libvirt deletes those that no snapshot refers to.
    """
    targets = {disk.get("name") for disk in _external(snapshot)}
    disks = [disk for root in files.trees(domain) for disk in root.iterfind("devices/disk")]
    target_sources = ((tree.child(disk, "target").get("dev"), _data_source(disk)) for disk in disks)
    return {source for target, source in target_sources if source and targets & {target, source}}


def assess(
    conn: libvirt.virConnect, domain: libvirt.virDomain, changed: Iterable[str], verb: str
) -> AffectedFiles:
    """Return the AffectedFiles of these paths."""
    affected = AffectedFiles(verb, set(changed))
    if not changed:
        return affected
    trees = files.trees(domain)
    own_sources = {_data_source(disk) for root in trees for disk in root.iterfind("devices/disk")}
    for path in (
        {source for source in own_sources if source}
        | layers(domain.listAllSnapshots())
        | affected.changed
    ):
        if usage.others_may_have(conn, path):
            identities = affected.shared if path in affected.changed else affected.own_files
            identities[path] = usage.file_identity(conn, path)
    return affected


def refuse(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    affected: AffectedFiles,
    unused: Collection[str] = (),
    refuse_unknown: bool = True,
) -> None:
    """Raise Refused if another user needs a changed file.

    Users are guests, images that no guest refers to, and other hosts, unless the path is in
    ``unused``, which all of them reported as unused. refuse_unknown: also refuse if the users
    cannot be determined.
    """
    paths = affected.changed
    if not paths:
        return
    used = usage.read(
        conn, domain.UUIDString(), sibling_paths=[p for p in paths if p.startswith("/")]
    )
    trees = [ElementTree.fromstring(text) for text in usage.domain_xmls(domain)]
    path_sets = [files.paths(root) | files.volume_paths(conn, root) for root in trees]
    own_paths = {files.real(path) for path in set[str]().union(*path_sets)}
    for path in sorted(paths):
        with bounded_io.record_timeouts() as unresponsive:
            keys = usage.keys_of(conn, path)
        users = used.users_of(keys, own_paths)
        if users:
            raise errors.Refused(
                f"{path} would be lost, but {confidential.sensitive_names(users)} needs it"
            )
        if refuse_unknown and (unresponsive or used.keep_reason(keys, own_paths)):
            reason = (
                f"{', '.join(unresponsive)} does not respond"
                if unresponsive
                else used.keep_reason(keys, own_paths)
            )
            raise errors.Refused(f"{path} would be lost, but {reason}")
        if path in affected.shared and path not in unused:
            raise errors.Refused(
                f"{path} would be lost, but other hosts may need it "
                f"({usage.others_may_have(conn, path)}): salt-run {affected.verb} "
                f"{domain.name()} asks them"
            )
