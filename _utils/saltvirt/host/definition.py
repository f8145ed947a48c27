"""The definition with which a network or pool starts, as opposed to its running state."""

from __future__ import annotations

from saltvirt.host.connection import libvirt


def configured(resource: libvirt.virNetwork | libvirt.virStoragePool, inactive: int) -> str:
    """Return the XML with which a virNetwork or virStoragePool starts.

    inactive: the flag that requests it. Drivers that keep a single definition reject the flag.
    """
    try:
        return resource.XMLDesc(inactive)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_INVALID_ARG:
            raise
        return resource.XMLDesc(0)
