"""Snapshots as states: taking them, and going back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.errors import NotFound
from saltvirt.spec import values
from saltvirt.states.power import each

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


def arguments() -> list[str]:
    """What ``virt.snapshot`` takes, besides suffix."""
    return ["snapshot", "description", "disk_only", "quiesce"]


def taken(
    host: StateHost, name: str, suffix: object, snapshot: object = None, **how: Any
) -> Answer:
    """See ``virt.snapshot``."""
    given = {"name": snapshot, "suffix": suffix, **how}
    given = {word: value for word, value in given.items() if value is not None}
    for word in ("disk_only", "quiesce"):
        if word in given:
            given[word] = values.boolean(given[word], word)

    def act(guest: str) -> dict[str, Any] | None:
        wanted = "-".join(str(part) for part in (snapshot, suffix) if part) if snapshot else None
        if wanted and wanted in _names(host, guest):
            return None
        if host.test:
            planned = host.call("snapshot", guest, **given, test=True)
            shown = wanted or "-".join([guest, "DATE", "TIME", *_said(suffix)])
            return {"snapshot": shown, **_notes(planned)}
        done = host.call("snapshot", guest, **given)
        return {"snapshot": done["name"], **_notes(done)}

    return each(host, name, act, "saved", "saved in a snapshot")


def _notes(answer: dict[str, Any]) -> dict[str, Any]:
    return {"notes": answer["notes"]} if answer.get("notes") else {}


def _said(suffix: object) -> list[str]:
    return [str(suffix)] if suffix else []


def _names(host: StateHost, guest: str) -> list[str]:
    found = host.call("list_snapshots", guest)[guest]
    return [one["name"] for one in found] if isinstance(found, list) else []


def reverted(host: StateHost, name: str, snapshot: object, cleanup: object) -> Answer:
    """See ``virt.reverted``."""

    def act(guest: str) -> dict[str, Any] | None:
        if not _names(host, guest):
            raise NotFound(f"{guest} has no snapshots")
        done = host.call("revert_snapshot", guest, snapshot, cleanup, test=host.test)
        return {"current": done["reverted"], "deleted": done["deleted"], **_notes(done)}

    return each(host, name, act, "reverted", "reverted")
