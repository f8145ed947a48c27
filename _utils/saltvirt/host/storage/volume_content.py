"""What a volume's content says of itself, and what must not be believed of it.

libvirt takes the format of a file in a pool, and the names of other files in it, from its content,
and starts qemu-img by that. A guest can write any header to its raw disk.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import errors, sanitize, units
from saltvirt.host import connection
from saltvirt.host.storage import bounded_io, chains, files
from saltvirt.images import clone, header, inspect
from saltvirt.xml.storage.volume import Volume

if TYPE_CHECKING:
    import libvirt

# formats whose tables say where each block is
_IN_BLOCKS = ("qcow2", "qed", "vmdk", "vdi", "vhdx", "vpc")
# libvirt writes a name out of an image into its XML as it is
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")


def definition(volume: libvirt.virStorageVol) -> Volume:
    """The Volume of a virStorageVol. Raises OperationFailed: its image names what is no text."""
    try:
        xml = volume.XMLDesc(0)
    except UnicodeDecodeError as exc:
        raise errors.OperationFailed(
            f"volume {volume.name()}: its image refers to a file whose name is no text"
        ) from exc
    return Volume.fromstring(_NO_XML.sub(lambda match: f"\\x{ord(match[0]):02x}", xml))


def refuse_foreign(conn: libvirt.virConnect, volume: libvirt.virStorageVol) -> None:
    """Raises ImageError for a virStorageVol whose content leads qemu-img to other files, unless a
    domain of this host declares the format by which it does."""
    path = volume.path()
    if not connection.is_local(conn) or not files.is_regular(path):
        return
    format = definition(volume).format
    if format in chains.STANDALONE_FORMATS:
        return
    declared = files.format_by_domains(conn, path)
    if declared == format:
        return
    if declared:
        raise errors.ImageError(contradiction(path, declared, format))
    image_header = header.read(path, format)
    referenced = image_header.data_file or image_header.backing
    if referenced:
        raise errors.ImageError(
            f"{path} names the backing file {sanitize.one_line(referenced, 200)}: a guest could "
            f"have "
            f"written "
            "that to a raw disk. If it is yours, make it whole with qemu-img convert"
        )


def contradiction(path: str, declared: str, format: str | None) -> str:
    """Why what a guest declares to be of one format is not used as of another."""
    return (
        f"{path} is {declared} by the definition of its guest, but {format} by its content or by "
        "what was asked for: the guest may have written it, and libvirt would follow that"
    )


def refuse_oversized(
    conn: libvirt.virConnect, volume: libvirt.virStorageVol, pool: libvirt.virStoragePool
) -> None:
    """Raises ImageError for a virStorageVol whose copy takes more than the virStoragePool has, of
    which it would leave nothing to others."""
    path = volume.path()
    if not connection.is_local(conn) or not files.is_regular(path):
        return
    format, needed = definition(volume).format, volume.info()[2]
    if format in _IN_BLOCKS and files.format_by_domains(conn, path) is None:
        copy_format = format if format in clone.FORMATS else "raw"
        needed = clone.needed_bytes(inspect.inspect(path, format), copy_format)
    free = _free_bytes(pool)
    if needed > free:
        raise errors.ImageError(
            f"a copy of {path} takes {units.human_bytes(needed)}, and storage pool {pool.name()} "
            f"has {units.human_bytes(free)} free"
        )


def _free_bytes(pool: libvirt.virStoragePool) -> int:
    """Now; libvirt itself tells of when it last looked."""
    folder = ElementTree.fromstring(pool.XMLDesc(0)).findtext("target/path") or ""
    if os.path.isdir(folder) and not f"{folder}/".startswith("/dev/"):
        unit, _, free = bounded_io.room(folder)
        return unit * free
    free_bytes: int = pool.info()[3]
    return free_bytes


def validate_base(conn: libvirt.virConnect, path: str, format: str | None) -> None:
    """Raises ImageError, NotFound for a backing file that is none, or leads to files elsewhere
    that no domain of this host has declared; or that one has as raw."""
    declared = files.format_by_domains(conn, path)
    if declared == "raw" and format not in (None, "raw"):
        raise errors.ImageError(contradiction(path, declared, format))
    inspect.inspect(path, format, folders=["/"] if declared else None)
