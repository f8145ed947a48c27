"""Select the master's events that concern web pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from saltvirt.operations.access import activity

# runner functions that change nothing; READING in the page's store.js lists them, too
READ_ONLY = activity.QUERIES | {"ticket"}
# operations whose tags have the guest's name last
_NAME_LAST = ("migrate", "backup", "ha")
# keys of a step's data that pages receive
_STEP_KEYS = ("message", "text", "percent")
# tags of events that may change something but are not sent to pages
_REFRESH_TAGS = ("salt/engines/libvirt_events", "salt/virt/ha/request")
_RUN, _VIRT = "salt/run/", "runner.virt."


@dataclass(frozen=True)
class PageEvent:
    """An event for pages.

    subject: a guest or host. user: the only user who receives it; None: every user who can see the
    guest. needs_refresh: query the hypervisors again. is_shown: send tag and data to the pages.
    """

    tag: str
    data: dict[str, Any] = field(default_factory=dict)
    subject: str = ""
    user: str | None = None
    needs_refresh: bool = False
    is_shown: bool = True


class PageListener(Protocol):
    """Receives snapshots and events."""

    def snapshot_taken(self) -> None: ...

    def event_received(self, event: PageEvent) -> None: ...


def read(tag: str, data: dict[str, Any]) -> PageEvent | None:
    """The page event of an event; None if it does not concern pages. Any minion can send events, so
    an event only triggers a query or shows a message about a guest."""
    parts = tag.split("/")
    if tag.startswith(_RUN) and len(parts) == 4 and parts[3] == "ret":
        return _job_ended(tag, data)
    if parts[:2] == ["salt", "virt"] and len(parts) == 5:
        return _step(tag, parts, data)
    if tag.startswith(_REFRESH_TAGS) or "/lifecycle/" in tag:
        return PageEvent(tag, needs_refresh=True, is_shown=False)
    return None


def _job_ended(tag: str, data: dict[str, Any]) -> PageEvent | None:
    fun = str(data.get("fun"))
    if not fun.startswith(_VIRT):
        return None
    is_change = fun.removeprefix(_VIRT) not in READ_ONLY
    payload = {"fun": fun, "return": data.get("return")}
    return PageEvent(
        tag, payload, user=str(data.get("user")), needs_refresh=is_change, is_shown=is_change
    )


def _step(tag: str, parts: list[str], data: dict[str, Any]) -> PageEvent:
    subject = parts[3] if parts[2] in _NAME_LAST else parts[2]
    inner = data.get("data") if data.get("cmd") == "_minion_event" else data
    inner = inner if isinstance(inner, dict) else {}
    payload = {
        word: inner[word] for word in _STEP_KEYS if isinstance(inner.get(word), (str, int, float))
    }
    return PageEvent(tag, payload, subject, needs_refresh=parts[4] in ("done", "failed"))
