"""A guest's checkpoints, as libvirt on its host knows them: what tells another libvirt of them.

The bitmaps that belong to them lie in the guest's disks, and QEMU keeps them there whether libvirt
knows of checkpoints or not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree

from saltvirt.host.connection import libvirt

# an older daemon, or another driver than QEMU's
_UNKNOWN = ("VIR_ERR_NO_SUPPORT", "VIR_ERR_OPERATION_UNSUPPORTED")


def list_all(dom: libvirt.virDomain) -> list[libvirt.virDomainCheckpoint]:
    """All, parents first; none where libvirt's driver has no checkpoints."""
    try:
        return dom.listAllCheckpoints(libvirt.VIR_DOMAIN_CHECKPOINT_LIST_TOPOLOGICAL)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() in {getattr(libvirt, name) for name in _UNKNOWN}:
            return []
        raise


def texts(dom: libvirt.virDomain) -> tuple[str, ...]:
    """The XML of each, without the guest's definition, parents first."""
    texts = []
    for checkpoint in list_all(dom):
        with _skip_deleted():
            texts.append(checkpoint.getXMLDesc(libvirt.VIR_DOMAIN_CHECKPOINT_XML_NO_DOMAIN))
    return tuple(texts)


def names(dom: libvirt.virDomain) -> list[str]:
    """The names of all, parents first."""
    return [_name(text) for text in texts(dom)]


def redefine(dom: libvirt.virDomain, definitions: Iterable[str]) -> dict[str, str]:
    """Tells libvirt of checkpoints whose bitmaps came with the disks. Those that it knows already
    stay as they are. Returns the name of each of which it did not want to know to its reason."""
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
    """libvirt knows of none any more; the bitmaps stay in the disks."""
    for checkpoint in list_all(dom):
        with _skip_deleted():
            checkpoint.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)


def delete(dom: libvirt.virDomain, checkpoint: libvirt.virDomainCheckpoint) -> None:
    """Takes it away, and its bitmaps as far as QEMU does that: of a guest that is off, and of
    a bitmap that is lost or broken, they stay in the files."""
    if dom.isActive():
        with contextlib.suppress(libvirt.libvirtError):
            checkpoint.delete(0)
            return
    checkpoint.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)


@contextlib.contextmanager
def _skip_deleted() -> Iterator[None]:
    """Passes over one that went since it was listed."""
    try:
        yield
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_CHECKPOINT:
            raise
