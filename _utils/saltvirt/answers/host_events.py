"""What the engine ``virt_log`` of a hypervisor reports to its master: events of libvirt that were
not asked for, such as a crash, a guest that shuts down, or one that was started with virsh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.schema import Message, optional

# tag of reports, followed by the host
TAG = "salt/virt/log/"
# what the signature of a report covers beside the host, in place of a job and its function
JID, FUNCTION = "report", "virt_log"
# maximum number of events in a report
MAX_EVENTS = 100
# the events of libvirt, as filters of host.node.events
FILTERS = (
    "domain/lifecycle", "domain/reboot", "domain/watchdog", "domain/io_error",
    "domain/control_error",
)  # fmt: skip
MAX_DETAIL = 100

# state and detail of an event to its description
_STARTED = {
    "": "it was started", "migrated": "it has arrived by migration",
    "restored": "it was restored from its saved state", "from snapshot": "from a snapshot",
    "wakeup": "it has woken up", "recovered": "it was recovered",
}  # fmt: skip
_STOPPED = {
    "": "the guest has shut down", "destroyed": "it was powered off",
    "migrated": "it has left by migration", "saved": "its state was saved",
    "failed": "its emulator has failed", "from snapshot": "by a revert to a snapshot",
    "recovered": "it was recovered",
}  # fmt: skip
_PAUSED = {
    "": "it was paused", "migrated": "for a migration", "ioerror": "because of an I/O error",
    "watchdog": "by its watchdog", "restored": "it was restored paused",
    "from snapshot": "by a revert to a snapshot", "api error": "after an error of libvirt",
    "postcopy": "for a post-copy migration", "postcopy failed": "a post-copy migration has failed",
}  # fmt: skip
_DESCRIPTIONS = {
    "started": _STARTED, "stopped": _STOPPED, "paused": _PAUSED,
    "crashed": {"": "QEMU has ended unexpectedly"},
    "resumed": {"": "it runs again"},
    "panicked": {"": "the system in the guest has crashed"},
    "suspended": {"": "the guest has suspended itself"},
    "rebooted": {"": "the guest has rebooted"},
    "removed": {"": "its definition was removed"},
    "watchdog": {"": "its watchdog has expired"},
    "io_error": {"": "I/O error"},
    "control_error": {"": "libvirt has lost control of its emulator"},
    "unlogged": {"": "too many events: further ones of this hour are not recorded"},
    "listening": {"": "the engine virt_log listens to libvirt"},
    "libvirt_lost": {"": "libvirt does not respond"},
}  # fmt: skip
# states that a verb of the runner causes in normal operation
ROUTINE = frozenset({"started", "stopped", "paused", "resumed", "rebooted", "removed"})
_FAILURES = frozenset({
    "crashed", "panicked", "watchdog", "io_error", "control_error", "unlogged", "libvirt_lost",
})  # fmt: skip
_FAILED_DETAILS = frozenset({"failed", "ioerror", "watchdog", "api error", "postcopy failed"})
# libvirt's lifecycle events to our states
_LIFECYCLE = {
    "started": "started", "stopped": "stopped", "suspended": "paused", "resumed": "resumed",
    "crashed": "panicked", "pmsuspended": "suspended",
}  # fmt: skip
# details that say no more than the state
_PLAIN = frozenset({"booted", "shutdown", "paused", "unpaused", "unknown"})


@dataclass(frozen=True)
class HostEvent(Message):
    """number: counts the events since the engine has started. time_s: in seconds since 1970.
    guest: None for the host itself. state, detail: as ``describe`` knows them."""

    number: int
    time_s: float
    guest: str | None
    state: str
    detail: str = optional("")

    @property
    def is_failure(self) -> bool:
        return self.state in _FAILURES or self.detail in _FAILED_DETAILS


@dataclass(frozen=True)
class EventReport(Message):
    """session: of the engine's process. sent_s: when it was sent, in seconds since 1970.
    interval_s: after which the next report is sent at the latest. events: the recent ones, also
    those that former reports had, which may have been lost."""

    session: str
    sent_s: float
    interval_s: float
    events: tuple[HostEvent, ...] = optional(())


def describe(state: str, detail: str) -> str | None:
    """Return the description of an event; None for an unknown state."""
    descriptions = _DESCRIPTIONS.get(state)
    if descriptions is None:
        return None
    text = descriptions.get(detail)
    return text if text is not None else f"{descriptions['']}: {detail}"


def from_libvirt(event: str, data: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (state, detail) of an event of host.node.events about a domain; None if the log has
    no such event."""
    if event == "lifecycle":
        return _from_lifecycle(str(data.get("event")), str(data.get("detail")))
    if event == "reboot":
        return "rebooted", ""
    if event == "watchdog":
        return "watchdog", str(data.get("action"))
    if event == "io_error":
        parts = (data.get("dev"), data.get("reason"), data.get("action"))
        return "io_error", ", ".join(str(part) for part in parts if part)
    return ("control_error", "") if event == "control_error" else None


def _from_lifecycle(name: str, detail: str) -> tuple[str, str] | None:
    if (name, detail) == ("stopped", "crashed"):
        return "crashed", ""
    if (name, detail) == ("undefined", "removed"):
        return "removed", ""
    state = _LIFECYCLE.get(name)
    has_detail = state in ("started", "stopped", "paused") and detail not in _PLAIN
    return (state, detail if has_detail else "") if state else None
