"""Remove a guest with its own disks, and nothing else."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.answers.creation import Phase
from saltvirt.host import connection, hooks
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import creation, lifecycle, lookup, metadata, removal
from saltvirt.host.storage import file_mark, files, usage
from saltvirt.images import clone

if TYPE_CHECKING:
    from saltvirt.host.storage.sharing import FileIdentity

log = logging.getLogger(__name__)

# which disks are deleted with a guest
OWN_DISKS, RECORDED_DISKS, NO_DISKS = "own", "made", "none"
NOT_MADE = "not created for this guest"
OTHER_FILE = "this file was not created by the interrupted operation, but put there afterwards"


@dataclass
class PurgePlan:
    """What a purge deletes (real paths), and what it leaves, with the reason.

    shared: identities of files that are deleted only if no other host uses them. uncertain: the
    guest's own disks that stay. variables: files of firmware variables, which libvirt deletes with
    the definition.
    """

    delete: list[str] = field(default_factory=list)
    keep: dict[str, str] = field(default_factory=dict)
    shared: dict[str, FileIdentity] = field(default_factory=dict)
    uncertain: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)


def own_disks(
    conn: libvirt.virConnect, tree: ElementTree.Element
) -> Iterator[tuple[str, str, str | None]]:
    """Return (path, declared format, reason to keep it or None) for each disk in a domain's XML."""
    for node in tree.iterfind("devices/disk"):
        source = node.find("source")
        if source is None:
            continue
        path = files.source_path(conn, source)
        if not path:
            continue
        reason = None
        if node.get("device", "disk") != "disk":
            reason = f"the medium of a {node.get('device')}"
        elif node.find("readonly") is not None:
            reason = "attached read-only"
        elif node.find("shareable") is not None:
            reason = "shared"
        yield path, files.declared(node), reason


def _snapshot_files(dom: libvirt.virDomain) -> Iterator[tuple[str, str, bool]]:
    """Return (path, format, whether it is memory) for the files of the domain's snapshots on this
    host."""
    with contextlib.suppress(libvirt.libvirtError):
        for snapshot in dom.listAllSnapshots():
            tree = ElementTree.fromstring(snapshot.getXMLDesc())
            for memory in tree.iterfind("memory[@file]"):
                yield memory.attrib["file"], "raw", True
            for disk in tree.iterfind("disks/disk"):
                source = disk.find("source")
                layer = source.get("file") if source is not None else None
                if layer:
                    yield layer, files.declared(disk), False


def plan(
    conn: libvirt.virConnect,
    dom: libvirt.virDomain,
    cache_dir: str | None = None,
    disks: str = OWN_DISKS,
    unused: Collection[str] = (),
) -> PurgePlan:
    """Return the PurgePlan for a domain; change nothing.

    disks: OWN_DISKS, RECORDED_DISKS or NO_DISKS. For a guest that Salt Virt created: the disks in
    its record, and the overlays of its snapshots that are based on them. For any other guest: its
    writable disks. Never included: files that another domain uses or is based on, media, shared or
    read-only disks, images of the cache. Files that other hosts may use are included only if they
    are in ``unused``, which the other hosts have confirmed.
    """
    trees = files.trees(dom)
    for source in (item for tree in trees for item in tree.iterfind("devices/disk/source[@pool]")):
        files.require_pool(conn, source.get("pool", ""))
    recorded = any(metadata.of_tree(tree) for tree in trees)
    only_recorded = recorded or disks != OWN_DISKS
    recorded_paths = {files.real(path) for path in metadata.disk_paths(conn, trees)}
    candidates: dict[str, str | None] = dict.fromkeys(recorded_paths)
    for path, format, memory in _snapshot_files(dom):
        is_owned = not only_recorded or (
            recorded and (memory or not recorded_paths.isdisjoint(files.chain_paths(path, format)))
        )
        candidates[files.real(path)] = None if is_owned else NOT_MADE
    for path, format, reason in (item for tree in trees for item in own_disks(conn, tree)):
        chain = files.chain_paths(path, format)
        if not only_recorded:
            candidates[files.real(path)] = reason
        elif recorded_paths.isdisjoint(chain):
            candidates[files.real(path)] = reason or NOT_MADE
        else:
            layers = itertools.takewhile(lambda item: item not in recorded_paths, chain)
            candidates.update(dict.fromkeys(layers))
    candidates.update(_foreign_files(trees, recorded_paths))
    variables, retained = removal.variables_plan(conn, dom)
    if disks == NO_DISKS:
        keep = {path: reason or "not requested" for path, reason in candidates.items()}
        return PurgePlan(keep=keep | retained, variables=variables)
    used = usage.read(
        conn, dom.UUIDString(), below_folder=_images(cache_dir), sibling_paths=candidates
    )
    cache = files.real(cache_dir) + os.sep if cache_dir else None
    for path in candidates:
        if cache and path.startswith(cache):
            candidates[path] = "a cached image"
    deletable = {path for path, reason in candidates.items() if reason is None}
    delete, keep, shared = usage.decide(conn, candidates, used, map(files.real, unused))
    replaced = _replaced_disks(conn, dom)
    keep |= {path: reason for path, reason in replaced.items() if path not in candidates}
    return PurgePlan(delete, keep | retained, shared, sorted(deletable - set(delete)), variables)


def _foreign_files(
    trees: list[ElementTree.Element], recorded_paths: Collection[str]
) -> dict[str, str]:
    """Return the files that exist where an interrupted creation was to create a disk, but lack its
    mark: real path to the reason to keep it."""
    marks = {record.mark for record in map(metadata.of_tree, trees) if record.creating}
    return {
        path: OTHER_FILE
        for path in recorded_paths
        for mark in marks
        if mark and files.is_regular(path) and file_mark.matches(path, mark) is False
    }


def _replaced_disks(conn: libvirt.virConnect, dom: libvirt.virDomain) -> dict[str, str]:
    """Return the disks that the guest had before it was replaced: real path to what deletes it."""
    return {
        files.real(path): guest.reason
        for feature in hooks.installed()
        for guest in feature.retained_guests(dom.UUIDString())
        for path, _, keep_reason in own_disks(conn, guest.tree)
        if not keep_reason
    }


def _images(cache_dir: str | None) -> str | None:
    """Return the folder of images, given that of the cache in it."""
    return os.path.dirname(cache_dir) if cache_dir else None


def delete_storage(conn: libvirt.virConnect, path: str) -> None:
    """Delete one volume or regular file. A missing one counts as deleted."""
    with contextlib.suppress(errors.NotFound), connection.translated(f"delete {path}"):
        conn.storageVolLookupByPath(path).delete(0)
        return
    if not connection.is_local(conn):
        raise errors.OperationFailed(f"cannot delete {path}: it is in no storage pool of the host")
    delete_file(path)


def delete_file(path: str) -> None:
    """Delete a regular file of this host. A missing one counts as deleted."""
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode):
            log.warning("%s is not a file and in no storage pool: it is not deleted", path)
            return
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise errors.OperationFailed(f"cannot delete {path}: {exc.strerror}") from exc


def _delete_part(path: str) -> None:
    """Delete the partial file that remains if the creation of the disk was killed."""
    delete_file(clone.part(path))


def not_at_work(dom: libvirt.virDomain) -> None:
    """Raise OperationFailed while a process creates this guest."""
    if creation.of_domain(dom) is Phase.CREATING:
        raise errors.OperationFailed(f"cannot purge {dom.name()}: it is being created")


def _remove_empty(paths: Collection[str], images_dir: str) -> None:
    """Remove the folders below images_dir that are empty after the disks were deleted."""
    root = files.real(images_dir) + os.sep
    for folder in sorted({os.path.dirname(p) for p in paths}, reverse=True):
        if folder.startswith(root):
            with contextlib.suppress(OSError):  # not empty
                os.rmdir(folder)


def _delete(
    conn: libvirt.virConnect,
    name: str,
    paths: Collection[str],
    uuid: str,
    images: str | None,
    unused: Collection[str],
) -> None:
    """Delete all disks of a stopped guest. Delete none if another guest has begun to use one of
    them since they were checked, or if the guest was just started."""
    advice = f"{name} is stopped and still defined: purge it again when that operation has ended"
    with usage.prevent_open(conn, paths) as claims:
        used = usage.read(conn, uuid, below_folder=images, sibling_paths=paths)
        for path, reason in usage.decide(conn, claims, used, map(files.real, unused))[1].items():
            raise errors.OperationFailed(f"{path} was not deleted: {reason}; {advice}")
        now = lookup.find(conn, name)
        if now is not None and now.isActive():
            raise errors.OperationFailed(
                f"{name} was started in the meantime: nothing was deleted; purge it again"
            )
        for path in paths:
            delete_storage(conn, path)
            _delete_part(path)
            log.info("purge of %s: deleted %s", name, path)


def purge(
    conn: libvirt.virConnect,
    name: str,
    cache_dir: str | None = None,
    images_dir: str | None = None,
    dirs: bool = False,
    disks: str = OWN_DISKS,
    unused: Collection[str] = (),
    force: bool = True,
) -> PurgePlan:
    """Stop the domain, delete its own disks, undefine it, and confirm each step. Return the
    PurgePlan.

    dirs: also remove the folders below images_dir that became empty. disks, unused: as for
    :func:`plan`. force: if False, raise OperationFailed for a guest that is not off. The purge can
    be repeated after a failure.
    """
    dom = lookup.lookup(conn, name)
    not_at_work(dom)
    if not force and dom.isActive():
        raise errors.OperationFailed(f"cannot purge {name}: it is {lookup.state(dom)}")
    todo = plan(conn, dom, cache_dir, disks, unused)
    persistent, uuid = dom.isPersistent(), dom.UUIDString()
    if dom.isActive():
        lifecycle.stop(dom)
    _delete(conn, name, todo.delete, uuid, _images(cache_dir), unused)
    for path, reason in todo.keep.items():
        log.info("purge of %s: %s was not deleted: %s", name, path, reason)
    if persistent:
        removal.undefine(conn, dom, everything=True)
    if dirs and images_dir:
        _remove_empty(todo.delete, images_dir)
    return todo
