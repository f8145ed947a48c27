"""Going back to an external snapshot where libvirt (before 9.9) cannot.

Such a snapshot is a layer: the disk's file as it was, and a qcow2 file on top of it that
takes what is written since. To go back is to begin that file anew.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.snapshot import checkpoints
from saltvirt.host.storage import deletion, files, usage
from saltvirt.images import chain, clone, confined, header
from saltvirt.xml import tree

if TYPE_CHECKING:
    from saltvirt.snapshot.tree import SnapshotNode

log = logging.getLogger(__name__)

_OWNER_MODE = 0o600


@dataclass(frozen=True)
class Layer:
    """The file that takes one disk's writes since the snapshot; target: e.g. ``vda``."""

    target: str
    path: str

    def recreate_in(self, new_path: str) -> None:
        """Makes an empty file on the same base of the file ``fresh``, with its owner."""
        action = f"reset {self.path}"
        head = header.read(self.path, "qcow2")
        base, kind = head.backing, head.backing_format
        if not base or not kind:
            raise errors.OperationFailed(f"cannot {action}: it has no backing file")
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", kind, new_path]
        reads = chain.names(self.path, "qcow2")[1:]
        confined.run(argv, action, reads=reads, writes=[new_path])
        stat = os.stat(self.path)
        shutil.copymode(self.path, new_path)
        os.chown(new_path, stat.st_uid, stat.st_gid)


def layers(snapshot: libvirt.virDomainSnapshot) -> list[Layer]:
    """The Layers of a snapshot of files. Raises Unsupported when it has anything else."""
    root = ElementTree.fromstring(snapshot.getXMLDesc(0))
    memory = root.find("memory")
    result = []
    for disk in root.iterfind("disks/disk"):
        source = disk.find("source[@file]")
        if disk.get("snapshot") == "external" and source is not None:
            result.append(Layer(disk.attrib["name"], source.attrib["file"]))
        elif disk.get("snapshot") != "no":
            break
    else:
        if result and (memory is None or memory.get("snapshot") == "no"):
            return result
    raise errors.Unsupported(
        f"this libvirt cannot revert to snapshot {snapshot.getName()}: "
        "only to external snapshots without memory (disk_only)"
    )


def revert(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    snapshot: libvirt.virDomainSnapshot,
    newer: Sequence[libvirt.virDomainSnapshot],
    unused: Collection[str] = (),
) -> None:
    """Puts the guest's disks back to the snapshot and leaves it shut off.

    newer: the snapshots made on top of it, the newest first; they and their files go, those that
    other hosts may have where they are in ``unused``: nobody there needs them.
    """
    layer_list = layers(snapshot)
    newer_paths = {layer.path for vir_snapshot in newer for layer in layers(vir_snapshot)}
    try:
        _recreate_layers(conn, domain, layer_list)
    except OSError as exc:
        raise errors.OperationFailed(
            f"cannot reset {', '.join(layer.path for layer in layer_list)}: {exc.strerror}"
        ) from exc
    # the files first: as long as a snapshot is there, it names its own
    remove(conn, newer_paths - {layer.path for layer in layer_list}, unused, domain.UUIDString())
    for vir_snapshot in newer:
        vir_snapshot.delete(libvirt.VIR_DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY)
    _make_current(domain, snapshot)


def protect(conn: libvirt.virConnect, new_snapshot: SnapshotNode) -> list[str]:
    """Gives the layers that libvirt made of a guest that is off the mode of what they are on, as
    each user of the host may read what libvirt makes there. Sentences about those where this
    failed."""
    notes = []
    for disk in new_snapshot.disks if connection.is_local(conn) else ():
        if not disk.layer or not files.is_regular(disk.layer):
            continue
        try:
            is_file = disk.base is not None and files.is_regular(disk.base)
            mode = stat.S_IMODE(os.stat(disk.base or "").st_mode) if is_file else 0
            os.chmod(disk.layer, mode | _OWNER_MODE)
        except OSError as exc:
            notes.append(f"others may be able to read {disk.layer}: {exc.strerror}")
    return notes


def stop(domain: libvirt.virDomain) -> None:
    """Stops the guest, and has libvirt forget its checkpoints: what its backups know is of what was
    written since."""
    if domain.isActive():
        domain.destroy()
    checkpoints.forget(domain)


def _recreate_layers(
    conn: libvirt.virConnect, domain: libvirt.virDomain, layer_list: Sequence[Layer]
) -> None:
    """Has the guest's disks use these Layers, which are empty then; all of them or none. The guest
    is stopped when their files are made."""
    with contextlib.ExitStack() as stack:
        new_paths = {
            layer_file.path: stack.enter_context(clone.part_of(layer_file.path))
            for layer_file in layer_list
        }
        for layer in layer_list:
            layer.recreate_in(new_paths[layer.path])
        stop(domain)
        with usage.prevent_open(conn, new_paths) as open_reasons:
            for path, reason in open_reasons.items():
                if reason:
                    raise errors.OperationFailed(f"{path} is not reset: {reason}")
            _point_at(conn, domain, layer_list)
            for path, new_path in new_paths.items():
                os.replace(new_path, path)


def remove(
    conn: libvirt.virConnect,
    paths: Collection[str],
    unused: Collection[str] = (),
    guest: str | None = None,
) -> None:
    """Deletes the files of layers, but those that other hosts may have and were not asked about,
    and those that somebody uses, or of which nobody can tell: a warning in the log names them.
    guest: UUID of whose they are."""
    to_delete = {files.real(path) for path in paths}
    for path in paths:
        if path in unused or not usage.others_may_have(conn, path):
            try:
                with deletion.ensure_unused(conn, path, guest, to_delete):
                    os.unlink(path)
            except FileNotFoundError:
                pass
            except errors.OperationFailed as exc:
                log.warning("%s", exc.text)


def _point_at(
    conn: libvirt.virConnect, domain: libvirt.virDomain, layer_list: Sequence[Layer]
) -> None:
    """Has the guest's disks use the files of these Layers."""
    secure = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    root = ElementTree.fromstring(domain.XMLDesc(secure))
    paths = {layer.target: layer.path for layer in layer_list}
    for disk in root.iterfind("devices/disk"):
        path = paths.get(tree.child(disk, "target").get("dev", ""))
        source = disk.find("source")
        if path and source is not None and source.get("file") != path:
            source.set("file", path)
            tree.child(disk, "driver").set("type", "qcow2")
            for backing in disk.findall("backingStore"):
                disk.remove(backing)
    conn.defineXML(ElementTree.tostring(root, encoding="unicode"))


def name_paths(
    conn: libvirt.virConnect, domain: libvirt.virDomain, snapshot: libvirt.virDomainSnapshot
) -> None:
    """Names volumes by their paths in what a snapshot tells of the guest's disks: libvirt deletes
    no external snapshot of a guest that was off, and had its disk by pool and volume."""
    root = ElementTree.fromstring(snapshot.getXMLDesc(libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE))
    for disk in root.iterfind(".//devices/disk[@type='volume']"):
        source = tree.child(disk, "source")
        path = files.volume_path(conn, source.get("pool"), source.get("volume"))
        if path:
            kind, word = ("file", "file") if files.is_regular(path) else ("block", "dev")
            disk.set("type", kind)
            for name in ("pool", "volume", "mode"):
                source.attrib.pop(name, None)
            source.set(word, path)
    flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT
    domain.snapshotCreateXML(ElementTree.tostring(root, encoding="unicode"), flags)


def _make_current(domain: libvirt.virDomain, snapshot: libvirt.virDomainSnapshot) -> None:
    text = snapshot.getXMLDesc(libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE)
    flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT
    domain.snapshotCreateXML(text, flags)
