"""Formats of existing disks that are used unchanged."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host.storage import chains, files, identity, volume_content
from saltvirt.images import header
from saltvirt.rights import confidential
from saltvirt.system import bounded_io

if TYPE_CHECKING:
    import libvirt

    from saltvirt.spec.disk import DiskSpec


def is_block(path: str) -> bool:
    """Return whether the path is a block device or a link to one. Raises
    bounded_io.StorageTimeout."""
    try:
        return stat.S_ISBLK(bounded_io.stat(path).st_mode)
    except bounded_io.StorageTimeout:
        raise
    except (OSError, ValueError):
        return False


def refuse_leftover(spec: DiskSpec, guest: str, location: str) -> None:
    """Raise Incomplete for an existing disk where an interrupted operation may have created one.

    The leftover will be removed, but someone may have put another file there since.
    """
    if spec.existing:
        raise errors.Incomplete(
            f"disk {spec.name}: {location} is either a leftover of an interrupted "
            f"operation on {guest}, or your data: to use it, move it away until salt-run "
            f"virt.repair name={guest} apply=True has removed the leftovers; without "
            "existing: True it is deleted and created again"
        )


def advice(conn: libvirt.virConnect, spec: DiskSpec, guest: str, path: str) -> str:
    """Return advice for a disk whose location is occupied, possibly by a disk of a renamed
    guest."""
    keys = identity.keys_of(path)
    for dom in conn.listAllDomains():
        for tree in files.trees(dom) if dom.name() != guest else ():
            if any(keys & identity.keys_of(used) for used in files.writable(conn, tree)):
                owner = confidential.sensitive(dom.name())
                return (
                    f"it is a disk of {owner}: choose another name for {spec.name}, or another pool"
                )
    return "existing: True uses it if it does not belong to another guest"


def format_of(conn: libvirt.virConnect, spec: DiskSpec, path: str) -> str:
    """Return the format with which a DiskSpec uses the file at ``path``.

    That is the requested format, else the format that a domain of this host declares, else raw. A
    guest may write another format's header to a raw disk, referring to any file. A file that
    resembles another format is therefore not used without a format, and a file that no domain
    declares may not refer to files elsewhere.

    Raises InvalidInput otherwise, and for other file types.
    """
    if not files.is_regular(path) and not is_block(path):
        raise errors.InvalidInput(f"disk {spec.name}: {path} is neither a file nor a block device")
    declared = files.format_by_domains(conn, path)
    format_name = spec.format or declared
    if declared == "raw" and format_name != "raw":
        reason = volume_content.contradiction(path, declared, format_name)
        raise errors.InvalidInput(f"disk {spec.name}: {reason}")
    if format_name and not declared:
        _refuse_outside(spec, path, format_name)
    if format_name or spec.device != "disk" or is_block(path):
        return format_name or "raw"
    try:
        guess = header.looks_like(path)
    except OSError as exc:
        raise errors.InvalidInput(f"disk {spec.name}: cannot read {path}: {exc.strerror}") from exc
    if guess != "raw":
        raise errors.InvalidInput(
            f"disk {spec.name}: {path} already exists and looks like {guess}: set its format: "
            f"format: {guess}, or format: raw for a disk that a guest has used as raw"
        )
    return "raw"


def _refuse_outside(spec: DiskSpec, path: str, format: str) -> None:
    """Raise InvalidInput for a disk whose header refers to a file in another folder.

    QEMU would open it for the guest. ``backing_store_path`` is accepted.
    """
    scan = chains.read(path, format)
    folder = os.path.dirname(files.real(path))
    for part in map(files.real, scan.paths[1:]):
        is_declared = spec.backing_store_path and part == files.real(spec.backing_store_path)
        if not is_declared and os.path.dirname(part) != folder and not is_block(path):
            raise errors.InvalidInput(
                f"disk {spec.name}: {path} has the backing file {part}, in another folder: if "
                f"that is intended, set backing_store_path: {part} and backing_store_format"
            )
    if scan.broken:
        raise errors.InvalidInput(f"disk {spec.name}: cannot use {path}: {scan.broken}")
