"""Guests that fail alone, while their host is well: what is seen of one, what a restart mends."""

from __future__ import annotations

from saltvirt.ha.facts import (
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
    GuestThere,
)

_ENDED = {
    CRASHED: "QEMU or its kernel crashed",
    FAILED: "it did not start",
    STOPPED: "it went down by itself",
}
_MENDED = (PANICKED, IO_FAILED, WATCHDOG, SILENT)
_WAITS = (FULL, UNCLEAR)


def failure(there: GuestThere, restarts: int) -> str:
    """What was seen of a guest that has failed, or nothing. restarts: so many it may have."""
    if there.state in _ENDED:
        return there.seen or _ENDED[there.state]
    if there.state == RUNNING and there.trouble in _MENDED:
        return there.seen or there.trouble
    if there.state == RUNNING and there.resets > restarts:
        return f"its watchdog has reset it {there.resets} times"
    return ""


def obstacle(there: GuestThere) -> str:
    """What keeps a guest from running that no restart would mend, or nothing."""
    if there.state == RUNNING and there.trouble in _WAITS:
        return there.seen or there.trouble
    return ""
