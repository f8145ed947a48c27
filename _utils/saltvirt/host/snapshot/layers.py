"""Revert to an external snapshot where libvirt before 9.9 cannot.

The snapshot is a layer: the disk's file stays unchanged, and a qcow2 file above it receives later
writes. A revert recreates that qcow2 file.
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
from saltvirt.system import atomic_file
from saltvirt.xml import tree

if TYPE_CHECKING:
    from saltvirt.snapshot.tree import SnapshotNode

log = logging.getLogger(__name__)

_OWNER_MODE = 0o600


@dataclass(frozen=True)
class Layer:
    """The file that receives the writes to one disk since the snapshot.

    target: e.g. ``vda``.
    """

    target: str
    path: str

    def recreate_in(self, new_path: str) -> None:
        """Create an empty file with the same backing file and owner at ``new_path``."""
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
    """Return the Layers of a snapshot. Raises Unsupported if it contains anything but files."""
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
        f"this version of libvirt cannot revert to snapshot {snapshot.getName()}: it "
        "only reverts to external snapshots without memory (disk_only)"
    )


def revert(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    snapshot: libvirt.virDomainSnapshot,
    newer: Sequence[libvirt.virDomainSnapshot],
    unused: Collection[str] = (),
) -> None:
    """Revert the guest's disks to the snapshot and leave the guest shut off.

    newer: the snapshots made after it, newest first. They are deleted with their files; a file that
    other hosts may use is deleted only if it is in ``unused``.
    """
    layer_list = layers(snapshot)
    newer_paths = {layer.path for vir_snapshot in newer for layer in layers(vir_snapshot)}
    try:
        _recreate_layers(conn, domain, layer_list)
    except OSError as exc:
        raise errors.OperationFailed(
            f"cannot reset {', '.join(layer.path for layer in layer_list)}: {exc.strerror}"
        ) from exc
    # files first: a snapshot names its files as long as it exists
    remove(conn, newer_paths - {layer.path for layer in layer_list}, unused, domain.UUIDString())
    for vir_snapshot in newer:
        vir_snapshot.delete(libvirt.VIR_DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY)
    _make_current(domain, snapshot)


def protect(conn: libvirt.virConnect, new_snapshot: SnapshotNode) -> list[str]:
    """Give the layers of a stopped guest the mode of the files below them.

    libvirt creates them readable for all users. Returns messages about failures.
    """
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
    """Stop the guest and remove its checkpoints, which describe data that the revert discards."""
    if domain.isActive():
        domain.destroy()
    checkpoints.forget(domain)


def _recreate_layers(
    conn: libvirt.virConnect, domain: libvirt.virDomain, layer_list: Sequence[Layer]
) -> None:
    """Recreate these layers empty and let the guest's disks use them; all of them or none.

    The guest is stopped once the new files exist.
    """
    with contextlib.ExitStack() as stack:
        paths = [layer_file.path for layer_file in layer_list]
        new_paths = {path: stack.enter_context(clone.part_of(path)) for path in paths}
        for layer in layer_list:
            layer.recreate_in(new_paths[layer.path])
        stop(domain)
        with usage.prevent_open(conn, new_paths) as open_reasons:
            for path, reason in open_reasons.items():
                if reason:
                    raise errors.OperationFailed(f"cannot reset {path}: {reason}")
            _point_at(conn, domain, layer_list)
            for path, new_path in new_paths.items():
                atomic_file.rename(new_path, path)


def remove(
    conn: libvirt.virConnect,
    paths: Collection[str],
    unused: Collection[str] = (),
    guest: str | None = None,
) -> None:
    """Delete the files of layers that are certainly unused; log a warning for others.

    Files that other hosts may use are deleted only if they are in ``unused``. guest: UUID of the
    owner.
    """
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
    """Let the guest's disks use the files of these Layers."""
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
    """Replace pool volumes by their paths in the definition within a snapshot.

    Otherwise libvirt cannot delete an external snapshot of a stopped guest with such a disk.
    """
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
