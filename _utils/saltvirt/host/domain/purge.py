"""Removing a guest with the disks that are its own, and with nothing else."""

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
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import creation, lifecycle, lookup, metadata, removal, replaced_guest
from saltvirt.host.storage import file_mark, files, usage
from saltvirt.images import clone

if TYPE_CHECKING:
    from saltvirt.host.storage.sharing import FileIdentity

log = logging.getLogger(__name__)

# which disks go with a guest
OWN_DISKS, RECORDED_DISKS, NO_DISKS = "own", "made", "none"
NOT_MADE = "not made for this guest"
OTHER_FILE = "its interrupted creation has not made this file: somebody has put it there since"


@dataclass
class PurgePlan:
    """What a purge deletes (real paths), and what it leaves, with the reason. shared: identities
    of what it would delete if it were known that no other host uses it. unsure: the guest's own
    disks that stay. variables: files of firmware variables, which libvirt deletes with the
    definition."""

    delete: list[str] = field(default_factory=list)
    keep: dict[str, str] = field(default_factory=dict)
    shared: dict[str, FileIdentity] = field(default_factory=dict)
    uncertain: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)


def own_disks(
    conn: libvirt.virConnect, tree: ElementTree.Element
) -> Iterator[tuple[str, str, str | None]]:
    """(path, its declared format, reason to keep it or None) of each disk in a domain's XML."""
    for node in tree.iterfind("devices/disk"):
        source = node.find("source")
        if source is None:
            continue
        path = source.get("file") or source.get("dev")
        if source.get("volume"):
            path = files.volume_path(conn, source.get("pool"), source.get("volume"))
        if not path:
            continue
        reason = None
        if node.get("device", "disk") != "disk":
            reason = f"a {node.get('device')}'s medium"
        elif node.find("readonly") is not None:
            reason = "attached read-only"
        elif node.find("shareable") is not None:
            reason = "shared"
        yield path, files.declared(node), reason


def _snapshot_files(dom: libvirt.virDomain) -> Iterator[tuple[str, str, bool]]:
    """(path, its format, whether it is memory) of what the domain's snapshots left here."""
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
    """The PurgePlan for a domain; changes nothing. disks: OWN, MADE (what a record names) or NONE.

    Of a guest that we made, the disks that its record names, and what is based on them: the
    overlays of its snapshots. Of any other, its writable disks. Never what another domain
    uses or is based on, a medium, a shared or read-only disk, or an image of the cache. What other
    hosts may have only when it is in ``unused``: they were asked.
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
        keep = {path: reason or "not asked for" for path, reason in candidates.items()}
        return PurgePlan(keep=keep | retained, variables=variables)
    used = usage.read(
        conn, dom.UUIDString(), below_folder=_images(cache_dir), sibling_paths=candidates
    )
    cache = files.real(cache_dir) + os.sep if cache_dir else None
    for path in candidates:
        if cache and path.startswith(cache):
            candidates[path] = "an image of the cache"
    deletable = {path for path, reason in candidates.items() if reason is None}
    delete, keep, shared = usage.decide(conn, candidates, used, map(files.real, unused))
    keep |= {
        path: explanation
        for path, explanation in _replaced_disks(conn, dom).items()
        if path not in candidates
    }
    return PurgePlan(delete, keep | retained, shared, sorted(deletable - set(delete)), variables)


def _foreign_files(
    trees: list[ElementTree.Element], recorded_paths: Collection[str]
) -> dict[str, str]:
    """Real path of each file to why it stays, that lies where an interrupted creation was to make a
    disk, and does not have its mark."""
    marks = {record.mark for record in map(metadata.of_tree, trees) if record.creating}
    return {
        path: OTHER_FILE
        for path in recorded_paths
        for mark in marks
        if mark and files.is_regular(path) and file_mark.matches(path, mark) is False
    }


def _replaced_disks(conn: libvirt.virConnect, dom: libvirt.virDomain) -> dict[str, str]:
    """Real path of each disk that the guest had before a backup took its place, to who deletes
    it."""
    guest = replaced_guest.load(dom.UUIDString())
    if guest is None:
        return {}
    instruction = f"virt.backup_confirm {dom.name()} host=HOST deletes it"
    reason = f"{dom.name()} as it was before {guest.backup} has it: {instruction}"
    return {
        files.real(path): reason
        for path, _, keep_reason in own_disks(conn, guest.tree)
        if not keep_reason
    }


def _images(cache_dir: str | None) -> str | None:
    """The folder of images, for that of the cache in it."""
    return os.path.dirname(cache_dir) if cache_dir else None


def delete_storage(conn: libvirt.virConnect, path: str) -> None:
    """Deletes one volume or regular file. What is not there is deleted already."""
    with contextlib.suppress(errors.NotFound), connection.translated(f"delete {path}"):
        conn.storageVolLookupByPath(path).delete(0)
        return
    if not connection.is_local(conn):
        raise errors.OperationFailed(f"cannot delete {path}: no storage pool of the host has it")
    delete_file(path)


def delete_file(path: str) -> None:
    """Deletes a regular file of this host; one that is not there is deleted already."""
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode):
            log.warning("%s is no file and in no storage pool: it is left", path)
            return
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise errors.OperationFailed(f"cannot delete {path}: {exc.strerror}") from exc


def _delete_part(path: str) -> None:
    """Deletes what the making of the disk left when its process was killed."""
    delete_file(clone.part(path))


def not_at_work(dom: libvirt.virDomain) -> None:
    """Raises OperationFailed while a process is making this guest."""
    if creation.of_domain(dom) is Phase.CREATING:
        raise errors.OperationFailed(f"cannot purge {dom.name()}: it is being created right now")


def _remove_empty(paths: Collection[str], images_dir: str) -> None:
    """Removes the folders below images_dir that the deleted disks left empty."""
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
    """Deletes the disks of a guest that was stopped; all of them or, where somebody has begun to
    use one since it was asked, or has just started the guest, none."""
    advice = f"{name} is stopped and still defined: purge again when that has ended"
    with usage.prevent_open(conn, paths) as claims:
        used = usage.read(conn, uuid, below_folder=images, sibling_paths=paths)
        for path, reason in usage.decide(conn, claims, used, map(files.real, unused))[1].items():
            raise errors.OperationFailed(f"{path} stays: {reason}; {advice}")
        now = lookup.find(conn, name)
        if now is not None and now.isActive():
            raise errors.OperationFailed(
                f"{name} was started meanwhile: nothing was deleted; purge it again"
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
    """Stops the domain, deletes its own disks, undefines it; confirms each. The PurgePlan.

    dirs: also remove the folders below images_dir that became empty. disks, unused: as for
    :func:`plan`. force: False: raises OperationFailed for a guest that is not off.
    After a failure it can be called again.
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
        log.info("purge of %s: %s is left, %s", name, path, reason)
    if persistent:
        removal.undefine(conn, dom, everything=True)
    if dirs and images_dir:
        _remove_empty(todo.delete, images_dir)
    return todo
