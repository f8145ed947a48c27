"""A guest's checkpoints in libvirt on its host, and their transfer to another libvirt.

The bitmaps of checkpoints are in the guest's disks; QEMU keeps them there whether libvirt knows the
checkpoints or not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree

from saltvirt.host.connection import libvirt

# an older daemon, or a driver other than QEMU's
_UNKNOWN = ("VIR_ERR_NO_SUPPORT", "VIR_ERR_OPERATION_UNSUPPORTED")


def list_all(dom: libvirt.virDomain) -> list[libvirt.virDomainCheckpoint]:
    """Return all checkpoints, parents first; none if libvirt's driver does not support
    checkpoints."""
    try:
        return dom.listAllCheckpoints(libvirt.VIR_DOMAIN_CHECKPOINT_LIST_TOPOLOGICAL)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() in {getattr(libvirt, name) for name in _UNKNOWN}:
            return []
        raise


def texts(dom: libvirt.virDomain) -> tuple[str, ...]:
    """Return the XML of all checkpoints, without the guest's definition, parents first."""
    texts = []
    for checkpoint in list_all(dom):
        with _skip_deleted():
            texts.append(checkpoint.getXMLDesc(libvirt.VIR_DOMAIN_CHECKPOINT_XML_NO_DOMAIN))
    return tuple(texts)


def names(dom: libvirt.virDomain) -> list[str]:
    """Return the names of all checkpoints, parents first."""
    return [_name(text) for text in texts(dom)]


def redefine(dom: libvirt.virDomain, definitions: Iterable[str]) -> dict[str, str]:
    """Define checkpoints whose bitmaps are in the disks already; existing definitions are kept.

    Returns the name of each checkpoint that libvirt rejected, with the reason.
    """
    refused: dict[str, str] = {}
    for text in definitions:
        name = _name(text)
        try:
            if name not in names(dom):
                dom.checkpointCreateXML(text, libvirt.VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE)
        except libvirt.libvirtError as exc:
            refused[name] = str(exc)
    return refused


def _name(text: str) -> str:
    return ElementTree.fromstring(text).findtext("name") or ""


def forget(dom: libvirt.virDomain) -> None:
    """Remove all checkpoints from libvirt; the bitmaps stay in the disks."""
    for checkpoint in list_all(dom):
        with _skip_deleted():
            checkpoint.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)


def delete(dom: libvirt.virDomain, checkpoint: libvirt.virDomainCheckpoint) -> None:
    """Delete a checkpoint, and its bitmaps as far as QEMU can: of a guest that is off, and of a
    bitmap that is lost or broken, they stay in the files."""
    if dom.isActive():
        with contextlib.suppress(libvirt.libvirtError):
            checkpoint.delete(0)
            return
    checkpoint.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)


@contextlib.contextmanager
def _skip_deleted() -> Iterator[None]:
    """Ignore a checkpoint that was deleted after it was listed."""
    try:
        yield
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_CHECKPOINT:
            raise
