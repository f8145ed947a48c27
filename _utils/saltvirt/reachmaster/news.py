"""Which events of the master concern pages, and what is told of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

# functions of the runner after which nothing is otherwise
_READING = frozenset({
    "query", "list", "host_info", "vm_info", "where", "explain", "capacity", "migratable", "certs",
    "backups", "ha_status", "versions", "metrics", "owners", "next_host", "migrate_unfinished",
    "ha_simulate", "display", "screenshot", "snapshots", "ticket", "watch",
})  # fmt: skip
# what has the guest's name after it, in the tags of its steps
_SWAPPED = ("migrate", "backup", "ha")
# of a step's data
_WORDS = ("message", "text", "percent")
# what may have changed something, and is not told itself
_ASK = ("salt/engines/libvirt_events", "salt/virt/ha/wish")
_RUN, _VIRT = "salt/run/", "runner.virt."


@dataclass(frozen=True)
class News:
    """about: the guest, or host. user: of whom alone it is; None: of each who sees the guest.
    changes: the hypervisors are to be asked. is_told: pages are told, with tag and data."""

    tag: str
    data: dict[str, Any] = field(default_factory=dict)
    about: str = ""
    user: str | None = None
    changes: bool = False
    is_told: bool = True


class Listener(Protocol):
    """Who watches."""

    def looked(self) -> None: ...

    def heard(self, told: News) -> None: ...


def read(tag: str, data: dict[str, Any]) -> News | None:
    """None: it is no page's concern. Anybody's minion can send events: none is more than a reason
    to ask, and words about a guest."""
    parts = tag.split("/")
    if tag.startswith(_RUN) and len(parts) == 4 and parts[3] == "ret":
        return _ended(tag, data)
    if parts[:2] == ["salt", "virt"] and len(parts) == 5:
        return _step(tag, parts, data)
    if tag.startswith(_ASK) or "/lifecycle/" in tag:
        return News(tag, changes=True, is_told=False)
    return None


def _ended(tag: str, data: dict[str, Any]) -> News | None:
    fun = str(data.get("fun"))
    if not fun.startswith(_VIRT):
        return None
    is_change = fun.removeprefix(_VIRT) not in _READING
    told = {"fun": fun, "return": data.get("return")}
    return News(tag, told, user=str(data.get("user")), changes=is_change, is_told=is_change)


def _step(tag: str, parts: list[str], data: dict[str, Any]) -> News:
    about = parts[3] if parts[2] in _SWAPPED else parts[2]
    inner = data.get("data") if data.get("cmd") == "_minion_event" else data
    inner = inner if isinstance(inner, dict) else {}
    told = {word: inner[word] for word in _WORDS if isinstance(inner.get(word), (str, int, float))}
    return News(tag, told, about, changes=parts[4] in ("done", "failed"))
