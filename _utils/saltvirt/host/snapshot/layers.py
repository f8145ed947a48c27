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
    from saltvirt.snapshot.tree import Snapshot

log = logging.getLogger(__name__)

_OWNERS = 0o600


@dataclass(frozen=True)
class Layer:
    """The file that takes one disk's writes since the snapshot; target: e.g. ``vda``."""

    target: str
    path: str

    def begin_anew(self, fresh: str) -> None:
        """Makes an empty file on the same base of the file ``fresh``, with its owner."""
        what = f"reset {self.path}"
        head = header.read(self.path, "qcow2")
        base, kind = head.backing, head.backing_format
        if not base or not kind:
            raise errors.OperationFailed(f"cannot {what}: it has no backing file")
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", kind, fresh]
        reads = chain.names(self.path, "qcow2")[1:]
        confined.run(argv, what, reads=reads, writes=[fresh])
        stat = os.stat(self.path)
        shutil.copymode(self.path, fresh)
        os.chown(fresh, stat.st_uid, stat.st_gid)


def layers(snapshot: libvirt.virDomainSnapshot) -> list[Layer]:
    """The Layers of a snapshot of files. Raises Unsupported when it has anything else."""
    root = ElementTree.fromstring(snapshot.getXMLDesc(0))
    memory = root.find("memory")
    found = []
    for disk in root.iterfind("disks/disk"):
        source = disk.find("source[@file]")
        if disk.get("snapshot") == "external" and source is not None:
            found.append(Layer(disk.attrib["name"], source.attrib["file"]))
        elif disk.get("snapshot") != "no":
            break
    else:
        if found and (memory is None or memory.get("snapshot") == "no"):
            return found
    raise errors.Unsupported(
        f"this libvirt cannot revert to snapshot {snapshot.getName()}: "
        "only to external snapshots without memory (disk_only)"
    )


def revert(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    snapshot: libvirt.virDomainSnapshot,
    above: Sequence[libvirt.virDomainSnapshot],
    unused: Collection[str] = (),
) -> None:
    """Puts the guest's disks back to the snapshot and leaves it shut off.

    above: the snapshots made on top of it, the newest first; they and their files go, those that
    other hosts may have where they are in ``unused``: nobody there needs them.
    """
    wanted = layers(snapshot)
    others = {layer.path for one in above for layer in layers(one)}
    try:
        _begin_anew(conn, domain, wanted)
    except OSError as exc:
        raise errors.OperationFailed(
            f"cannot reset {', '.join(layer.path for layer in wanted)}: {exc.strerror}"
        ) from exc
    # the files first: as long as a snapshot is there, it names its own
    remove(conn, others - {layer.path for layer in wanted}, unused, domain.UUIDString())
    for one in above:
        one.delete(libvirt.VIR_DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY)
    _make_current(domain, snapshot)


def protect(conn: libvirt.virConnect, taken: Snapshot) -> list[str]:
    """Gives the layers that libvirt made of a guest that is off the mode of what they are on, as
    each user of the host may read what libvirt makes there. Sentences about those where this
    failed."""
    notes = []
    for disk in taken.disks if connection.is_local(conn) else ():
        if not disk.layer or not files.is_regular(disk.layer):
            continue
        try:
            is_file = disk.base is not None and files.is_regular(disk.base)
            mode = stat.S_IMODE(os.stat(disk.base or "").st_mode) if is_file else 0
            os.chmod(disk.layer, mode | _OWNERS)
        except OSError as exc:
            notes.append(f"others may be able to read {disk.layer}: {exc.strerror}")
    return notes


def stop(domain: libvirt.virDomain) -> None:
    """Stops the guest, and has libvirt forget its checkpoints: what its backups know is of what was
    written since."""
    if domain.isActive():
        domain.destroy()
    checkpoints.forget(domain)


def _begin_anew(
    conn: libvirt.virConnect, domain: libvirt.virDomain, wanted: Sequence[Layer]
) -> None:
    """Has the guest's disks use these Layers, which are empty then; all of them or none. The guest
    is stopped when their files are made."""
    with contextlib.ExitStack() as making:
        fresh = {one.path: making.enter_context(clone.part_of(one.path)) for one in wanted}
        for layer in wanted:
            layer.begin_anew(fresh[layer.path])
        stop(domain)
        with usage.closed(conn, fresh) as held:
            for path, why in held.items():
                if why:
                    raise errors.OperationFailed(f"{path} is not reset: {why}")
            _point_at(conn, domain, wanted)
            for path, made in fresh.items():
                os.replace(made, path)


def remove(
    conn: libvirt.virConnect,
    paths: Collection[str],
    unused: Collection[str] = (),
    guest: str | None = None,
) -> None:
    """Deletes the files of layers, but those that other hosts may have and were not asked about,
    and those that somebody uses, or of which nobody can tell: a warning in the log names them.
    guest: UUID of whose they are."""
    doomed = {files.real(path) for path in paths}
    for path in paths:
        if path in unused or not usage.others_may_have(conn, path):
            try:
                with deletion.unused(conn, path, guest, doomed):
                    os.unlink(path)
            except FileNotFoundError:
                pass
            except errors.OperationFailed as exc:
                log.warning("%s", exc.text)


def _point_at(conn: libvirt.virConnect, domain: libvirt.virDomain, wanted: Sequence[Layer]) -> None:
    """Has the guest's disks use the files of these Layers."""
    secure = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    root = ElementTree.fromstring(domain.XMLDesc(secure))
    paths = {layer.target: layer.path for layer in wanted}
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
