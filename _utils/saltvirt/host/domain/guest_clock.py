"""The clock of a guest that resumes from saved memory: it shows the time of the snapshot."""

from __future__ import annotations

import contextlib
import time

from saltvirt.host.connection import libvirt
from saltvirt.xml.domain.domain import Domain

_CHANNEL = "org.qemu.guest_agent.0"
_RESPONSE_S = 5
# libvirt detects the agent only some moments after the start
_TIMEOUT_S, _RETRY_S = 10, 0.5


def set_now(domain: libvirt.virDomain) -> str | None:
    """Let the agent of a running guest set its clock. Return a warning if the clock is still wrong,
    else None. No error is raised, because the guest runs and a time service in it may correct the
    clock."""
    if not _has_agent(domain):
        return expected_warning(domain)
    is_running = domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING
    reason = _set_time(domain) if is_running else "the guest is not running"
    return _warning(domain, reason) if reason else None


def expected_warning(domain: libvirt.virDomain) -> str | None:
    """Return the warning about a clock that will be wrong because the guest has no agent; else
    None."""
    return None if _has_agent(domain) else _warning(domain, "it has no guest agent")


def _warning(domain: libvirt.virDomain, reason: str) -> str:
    return (
        f"the clock of {domain.name()} shows the time of the snapshot ({reason}): set it in the "
        f"guest, or with `virsh domtime {domain.name()} --now` if its agent responds"
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
