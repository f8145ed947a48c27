"""Guests that fail while their host works: the observed failures, and those that a restart
repairs."""

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
    CRASHED: "QEMU or the guest's kernel crashed",
    FAILED: "it did not start",
    STOPPED: "it shut down by itself",
}
_RESTARTABLE = (PANICKED, IO_FAILED, WATCHDOG, SILENT)
_OBSTACLES = (FULL, UNCLEAR)


def failure(status: GuestStatus, restarts: int) -> str:
    """Return the observed failure of a guest, or "". restarts: the guest's maximum number of
    restarts."""
    if status.state in _STOPPED_CAUSES:
        return status.detail or _STOPPED_CAUSES[status.state]
    if status.state == RUNNING and status.trouble in _RESTARTABLE:
        return status.detail or status.trouble
    if status.state == RUNNING and status.resets > restarts:
        return f"its watchdog has reset it {status.resets} times"
    return ""


def obstacle(status: GuestStatus) -> str:
    """Return the problem that keeps a guest from running and that no restart would repair, or
    ""."""
    if status.state == RUNNING and status.trouble in _OBSTACLES:
        return status.detail or status.trouble
    return ""
