"""The format of a disk that is there already and is used as it is."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host.storage import bounded_io, chains, files, identity, volume_content
from saltvirt.images import header
from saltvirt.rights import confidential

if TYPE_CHECKING:
    import libvirt

    from saltvirt.spec.disk import DiskSpec


def is_block(path: str) -> bool:
    """True for a block device, also by a link. Raises bounded.Silent."""
    try:
        return stat.S_ISBLK(bounded_io.stat(path).st_mode)
    except bounded_io.StorageTimeout:
        raise
    except (OSError, ValueError):
        return False


def refuse_leftover(spec: DiskSpec, guest: str, location: str) -> None:
    """Raises Incomplete for a disk that is to be used as it is, at a place where an operation that
    was interrupted may have made one, which is removed: somebody may have put it there since."""
    if spec.existing:
        raise errors.Incomplete(
            f"disk {spec.name}: {location} is either what an interrupted operation on {guest} has "
            "left, or data of yours: to use it, move it away until salt-run virt.repair "
            f"name={guest} apply=True has removed what is left; without existing: True it is "
            "removed and made anew"
        )


def advice(conn: libvirt.virConnect, spec: DiskSpec, guest: str, path: str) -> str:
    """What can be done about a disk that has the place of one that is to be made, in words. It may
    be that of a guest that was renamed."""
    keys = identity.keys_of(path)
    for dom in conn.listAllDomains():
        for tree in files.trees(dom) if dom.name() != guest else ():
            if any(keys & identity.keys_of(used) for used in files.writable(conn, tree)):
                owner = confidential.sensitive(dom.name())
                return f"it is a disk of {owner}: give {spec.name} another name, or another pool"
    return "existing: True uses it, when it is no other guest's"


def format_of(conn: libvirt.virConnect, spec: DiskSpec, path: str) -> str:
    """The format by which a DiskSpec uses what lies at ``path``.

    What was asked for, else what a domain of this host declares, else raw. A guest may write
    another format's header to a raw disk, with the name of any file in it: a file that looks
    like more than raw is used by no guess, and one that no domain of this host has yet leads to
    no file elsewhere that was not named.
    Raises InvalidInput for such ones, and for what is neither a file nor a block device.
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
            f"disk {spec.name}: {path} exists already and looks like {guess}: say which format it "
            f"has, format: {guess}, or format: raw for a disk that a guest has used as raw"
        )
    return "raw"


def _refuse_outside(spec: DiskSpec, path: str, format: str) -> None:
    """Raises InvalidInput for a disk whose own header names what lies elsewhere: QEMU would open
    it for the guest, whatever it is. What ``backing_store_path`` names is meant."""
    scan = chains.read(path, format)
    folder = os.path.dirname(files.real(path))
    for part in map(files.real, scan.paths[1:]):
        is_declared = spec.backing_store_path and part == files.real(spec.backing_store_path)
        if not is_declared and os.path.dirname(part) != folder and not is_block(path):
            raise errors.InvalidInput(
                f"disk {spec.name}: {path} has the backing file {part}, in another folder: if "
                f"that is meant, give backing_store_path: {part} and backing_store_format"
            )
    if scan.broken:
        raise errors.InvalidInput(f"disk {spec.name}: {path} is not used: {scan.broken}")
