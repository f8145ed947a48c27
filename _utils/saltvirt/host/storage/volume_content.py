"""Information in a volume's content, and the limits of trusting it.

libvirt derives the format of a file in a pool, and its backing file, from the content, and runs
qemu-img accordingly. A guest can write any header to its raw disk.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import errors, sanitize, units
from saltvirt.host import connection
from saltvirt.host.storage import chains, files
from saltvirt.images import clone, header, inspect
from saltvirt.system import bounded_io
from saltvirt.xml.storage.volume import Volume

if TYPE_CHECKING:
    import libvirt

# formats with block tables
_IN_BLOCKS = ("qcow2", "qed", "vmdk", "vdi", "vhdx", "vpc")
# libvirt copies names from an image into its XML without escaping
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")


def definition(volume: libvirt.virStorageVol) -> Volume:
    """Return the Volume of a virStorageVol. Raises OperationFailed if it refers to an undecodable
    name."""
    try:
        xml = volume.XMLDesc(0)
    except UnicodeDecodeError as exc:
        raise errors.OperationFailed(
            f"volume {volume.name()}: its image refers to a file whose name is no text"
        ) from exc
    return Volume.fromstring(_NO_XML.sub(lambda match: f"\\x{ord(match[0]):02x}", xml))


def refuse_foreign(conn: libvirt.virConnect, volume: libvirt.virStorageVol) -> None:
    """Raise ImageError if the volume's content refers qemu-img to other files.

    A format that a domain of this host declares is accepted.
    """
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
            "have written that to a raw disk. If it is yours, convert it to a full copy with "
            "qemu-img convert"
        )


def contradiction(path: str, declared: str, format: str | None) -> str:
    """Return the message that the declared format differs from the content's format."""
    return (
        f"{path} is {declared} by the definition of its guest, but {format} by its content or by "
        "what was asked for: the guest may have written it, and libvirt would follow that"
    )


def refuse_oversized(
    conn: libvirt.virConnect, volume: libvirt.virStorageVol, pool: libvirt.virStoragePool
) -> None:
    """Raise ImageError if a copy of the volume needs more space than the pool has."""
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
    """Return the current free bytes; libvirt only knows those of the last refresh."""
    folder = ElementTree.fromstring(pool.XMLDesc(0)).findtext("target/path") or ""
    if os.path.isdir(folder) and not f"{folder}/".startswith("/dev/"):
        unit, _, free = bounded_io.room(folder)
        return unit * free
    free_bytes: int = pool.info()[3]
    return free_bytes


def validate_base(conn: libvirt.virConnect, path: str, format: str | None) -> None:
    """Raise ImageError or NotFound for an invalid backing file.

    Invalid is a file that refers to files elsewhere and is not declared by a domain of this host,
    and one that a domain declares as raw.
    """
    declared = files.format_by_domains(conn, path)
    if declared == "raw" and format not in (None, "raw"):
        raise errors.ImageError(contradiction(path, declared, format))
    inspect.inspect(path, format, folders=["/"] if declared else None)
