"""Snapshots with file systems frozen by the guest agent."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from saltvirt import errors
from saltvirt.host.connection import libvirt, translate
from saltvirt.host.domain.addresses import has_agent

# timeout of the freeze; a query for addresses would leave it at 2 s
_FREEZE_TIMEOUT_S = 30
# how long a thaw is retried after a timeout
_THAW_TIMEOUT_S, _RETRY_S = 30, 1
# libvirt does not thaw after these errors, although the agent may still freeze
_TIMEOUT_ERRORS = ("VIR_ERR_AGENT_UNRESPONSIVE", "VIR_ERR_AGENT_UNSYNCED",
"VIR_ERR_AGENT_COMMAND_TIMEOUT",
         "VIR_ERR_OPERATION_TIMEOUT")  # fmt: skip


def require_agent(domain: libvirt.virDomain) -> None:
    """Raise Refused if no agent in the guest can freeze the file systems: libvirt would wait for
    it, and could not say whether they are frozen."""
    if domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
        raise errors.Refused(f"quiesce: {domain.name()} is paused: resume it, or leave quiesce out")
    if not has_agent(domain):
        raise errors.Refused(
            f"quiesce: the guest agent of {domain.name()} is not connected: start it in the guest, "
            "or leave quiesce out"
        )


@contextlib.contextmanager
def ensure_thawed(domain: libvirt.virDomain, quiesce: bool) -> Iterator[None]:
    """Ensure that the file systems are thawed after the block, if ``quiesce`` is set.

    libvirt has the agent freeze them within the block. Raises OperationFailed if they may stay
    frozen after a timeout.
    """
    if not quiesce:
        yield
        return
    with contextlib.suppress(libvirt.libvirtError):
        domain.agentSetResponseTimeout(_FREEZE_TIMEOUT_S, 0)
    try:
        yield
    except libvirt.libvirtError as exc:
        is_late = exc.get_error_code() in {
            getattr(libvirt, constant, None) for constant in _TIMEOUT_ERRORS
        }
        if is_late and not _thaw(domain):
            name = domain.name()
            raise errors.OperationFailed(
                f"{translate(exc).text}; the file systems of {name} may still be frozen: run "
                f"'virsh domfsthaw {name}' on its host"
            ) from exc
        raise


def _thaw(domain: libvirt.virDomain) -> bool:
    """Thaw the file systems; return whether they are certainly not frozen."""
    deadline = time.monotonic() + _THAW_TIMEOUT_S
    while True:
        with contextlib.suppress(libvirt.libvirtError):
            domain.fsThaw()
            return True
        with contextlib.suppress(libvirt.libvirtError):
            if not domain.isActive():
                return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_RETRY_S)
