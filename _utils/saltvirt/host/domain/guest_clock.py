"""The clock of a guest that goes on from memory of an earlier time: it stands at that time."""

from __future__ import annotations

import contextlib
import time

from saltvirt.host.connection import libvirt
from saltvirt.xml.domain.domain import Domain

_CHANNEL = "org.qemu.guest_agent.0"
_RESPONSE_S = 5
# libvirt learns only some moments after the start that the agent is there
_TIMEOUT_S, _RETRY_S = 10, 0.5


def set_now(domain: libvirt.virDomain) -> str | None:
    """Has the agent of a running guest set its clock; why it is still wrong, or None. Not raised:
    the guest runs, and a time service in it may do the same."""
    if not _has_agent(domain):
        return expected_warning(domain)
    is_running = domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING
    reason = _set_time(domain) if is_running else "it does not run"
    return _warning(domain, reason) if reason else None


def expected_warning(domain: libvirt.virDomain) -> str | None:
    """Why the clock is going to be wrong, of a guest that has no agent; else None."""
    return None if _has_agent(domain) else _warning(domain, "it has no guest agent")


def _warning(domain: libvirt.virDomain, reason: str) -> str:
    return (
        f"the clock of {domain.name()} stands at the time of the snapshot ({reason}): set it in "
        f"the "
        f"guest, or by `virsh domtime {domain.name()} --now` once its agent answers"
    )


def _set_time(domain: libvirt.virDomain) -> str:
    deadline = time.monotonic() + _TIMEOUT_S
    with contextlib.suppress(libvirt.libvirtError):
        domain.agentSetResponseTimeout(_RESPONSE_S, 0)
    while True:
        now = time.time_ns()
        try:
            domain.setTime({"seconds": now // 10**9, "nseconds": now % 10**9})
            return ""
        except libvirt.libvirtError as exc:
            reason = str(exc.get_error_message())
        if time.monotonic() >= deadline:
            return reason
        time.sleep(_RETRY_S)


def _has_agent(domain: libvirt.virDomain) -> bool:
    root = Domain.fromstring(domain.XMLDesc(0)).need()
    return any(target.get("name") == _CHANNEL for target in root.iterfind("devices/channel/target"))
