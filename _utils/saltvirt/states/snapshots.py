"""States of snapshots."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput, NotFound, SaltException
from saltvirt.spec import values
from saltvirt.states.power import each
from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


def arguments() -> list[str]:
    """The arguments of ``virt.snapshot``, except suffix."""
    return ["snapshot", "description", "disk_only", "quiesce", "keep"]


def taken(
    host: StateHost,
    name: str,
    suffix: object,
    snapshot: object = None,
    keep: object = None,
    **options: Any,
) -> Answer:
    """See ``virt.snapshot``."""
    count = None if keep is None else values.number(1)(keep, "keep")
    if count and snapshot:
        raise InvalidInput("keep is for snapshots that are named by their time: omit snapshot")
    snapshot_options = {"name": snapshot, "suffix": suffix, **options}
    snapshot_options = {
        word: value for word, value in snapshot_options.items() if value is not None
    }
    for word in ("disk_only", "quiesce"):
        if word in snapshot_options:
            snapshot_options[word] = values.boolean(snapshot_options[word], word)

    def act(guest: str) -> dict[str, Any] | None:
        full_name = "-".join(str(part) for part in (snapshot, suffix) if part) if snapshot else None
        if full_name and full_name in _names(host, guest):
            return None
        if host.test:
            planned = host.call("snapshot", guest, **snapshot_options, test=True)
            snapshot_name = full_name or "-".join([guest, "DATE", "TIME", *_suffix_parts(suffix)])
            deleted = _older(host, guest, suffix, count - 1) if count else []
            return {"snapshot": snapshot_name, **_notes(planned), **_deleted(deleted)}
        response = host.call("snapshot", guest, **snapshot_options)
        deleted = prune(guest, response["name"]) if count else []
        return {"snapshot": response["name"], **_notes(response), **_deleted(deleted)}

    stay: list[str] = []

    def prune(guest: str, new: str) -> list[str]:
        older = _older(host, guest, suffix, (count or 1) - 1, new)
        try:
            return [*host.call("delete_snapshots", guest, *older)["deleted"]] if older else []
        except SaltException as exc:
            stay.append(f"{guest}: {', '.join(older)} not deleted: {exc}")
            return []

    state_answer = each(host, name, act, "saved", "saved in a snapshot")
    if stay:
        sentences = [state_answer["comment"], *stay]
        return answer(state_answer["name"], state_answer["changes"], "", host.test, sentences)
    return state_answer


def _older(
    host: StateHost, guest: str, suffix: object, keep: int, new: str | None = None
) -> list[str]:
    """The guest's snapshots with time-based names and this suffix, the oldest first, except ``new``
    and the latest ``keep`` of the others. If the clock was set back, as at the end of summer time,
    ``new`` can have the name of an older snapshot."""
    end = "".join(f"-{re.escape(word)}" for word in _suffix_parts(suffix))
    dated = re.compile(rf"{re.escape(guest)}-\d{{8}}-\d{{6}}{end}")
    names = sorted({name for name in _names(host, guest) if dated.fullmatch(name)} - {new})
    return names[: max(0, len(names) - keep)]


def _deleted(names: list[str]) -> dict[str, list[str]]:
    return {"deleted": names} if names else {}


def _notes(answer: dict[str, Any]) -> dict[str, Any]:
    return {"notes": answer["notes"]} if answer.get("notes") else {}


def _suffix_parts(suffix: object) -> list[str]:
    return [str(suffix)] if suffix else []


def _names(host: StateHost, guest: str) -> list[str]:
    snapshots = host.call("list_snapshots", guest)[guest]
    return [snapshot["name"] for snapshot in snapshots] if isinstance(snapshots, list) else []


def reverted(host: StateHost, name: str, snapshot: object, cleanup: object) -> Answer:
    """See ``virt.reverted``."""

    def act(guest: str) -> dict[str, Any] | None:
        if not _names(host, guest):
            raise NotFound(f"{guest} has no snapshots")
        response = host.call("revert_snapshot", guest, snapshot, cleanup, test=host.test)
        return {"current": response["reverted"], "deleted": response["deleted"], **_notes(response)}

    return each(host, name, act, "reverted", "reverted")
