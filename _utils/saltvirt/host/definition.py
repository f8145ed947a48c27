"""The definition with which a network or pool starts, apart from how it runs now."""

from __future__ import annotations

from saltvirt.host.connection import libvirt


def configured(resource: libvirt.virNetwork | libvirt.virStoragePool, inactive: int) -> str:
    """XML of a virNetwork or virStoragePool as it would start.

    inactive: the flag that asks for it. Drivers that keep a single definition refuse it.
    """
    try:
        return resource.XMLDesc(inactive)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_INVALID_ARG:
            raise
        return resource.XMLDesc(0)
