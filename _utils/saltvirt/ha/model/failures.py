"""Guests that fail alone, while their host is well: what is seen of one, what a restart mends."""

from __future__ import annotations

from saltvirt.ha.model.messages import (
    CRASHED,
    FAILED,
    FULL,
    IO_FAILED,
    PANICKED,
    RUNNING,
    SILENT,
    STOPPED,
    UNCLEAR,
    WATCHDOG,
    GuestStatus,
)

_STOPPED_CAUSES = {
    CRASHED: "QEMU or its kernel crashed",
    FAILED: "it did not start",
    STOPPED: "it went down by itself",
}
_RESTARTABLE = (PANICKED, IO_FAILED, WATCHDOG, SILENT)
_OBSTACLES = (FULL, UNCLEAR)


def failure(status: GuestStatus, restarts: int) -> str:
    """What was seen of a guest that has failed, or nothing. restarts: so many it may have."""
    if status.state in _STOPPED_CAUSES:
        return status.seen or _STOPPED_CAUSES[status.state]
    if status.state == RUNNING and status.trouble in _RESTARTABLE:
        return status.seen or status.trouble
    if status.state == RUNNING and status.resets > restarts:
        return f"its watchdog has reset it {status.resets} times"
    return ""


def obstacle(status: GuestStatus) -> str:
    """What keeps a guest from running that no restart would mend, or nothing."""
    if status.state == RUNNING and status.trouble in _OBSTACLES:
        return status.seen or status.trouble
    return ""
