"""The memory of a guest that libvirt has saved while the guest is off: ``virsh managedsave``, and
``libvirt-guests`` at the host's shutdown if its setting is ``suspend``.

The next start resumes that memory, with the disks that the guest had when it was saved. If the
disks have changed meanwhile, the resumed guest damages its file systems.
"""

from __future__ import annotations

import contextlib

from saltvirt import errors
from saltvirt.host.connection import libvirt


def exists(dom: libvirt.virDomain) -> bool:
    """Whether the guest is off and its next start resumes saved memory."""
    with contextlib.suppress(libvirt.libvirtError):  # a driver without it
        return not dom.isActive() and bool(dom.hasManagedSaveImage())
    return False


def refuse(dom: libvirt.virDomain, action: str) -> None:
    """Raises Refused if the guest has saved memory. action: what is refused, as in "revert"."""
    if exists(dom):
        name = dom.name()
        raise errors.Refused(
            f"cannot {action} {name}: it has saved memory, which matches the current "
            f"content of its disks: start {name} first, or discard that memory with "
            f"'virsh managedsave-remove {name}'"
        )
