"""The changes of a state, and the comment about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from saltvirt.diff.change import Change
    from saltvirt.diff.network_changes import NetworkChange


@dataclass
class StateOutcome:
    """What was changed; with ``test``, what would be changed.

    subject: for example ``network lab``. changes: ``{path: {"old", "new"}}``. actions: for example
    ``["defined", "started"]``. notes: sentences for the operator. unchanged_text: text about the
    subject if nothing changes.
    """

    subject: str
    changes: dict[str, Any] = field(default_factory=dict)
    actions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unchanged_text: str = "is in the desired state"

    def switch(self, setting: str, old: object, new: object, word: str) -> bool:
        """Record a setting that changes; True if it does."""
        if old == new:
            return False
        self.changes[setting] = {"old": old, "new": new}
        self.actions.append(word)
        return True

    def comment(self, test: bool) -> str:
        """One line about the changes, followed by the notes."""
        if self.actions:
            would = "would be " if test else ""
            first = f"{self.subject} {would}{', '.join(dict.fromkeys(self.actions))}"
        elif self.changes:
            first = f"{self.subject} {'would be ' if test else ''}updated"
        else:
            first = f"{self.subject} {self.unchanged_text}"
        text = ". ".join([first, *self.notes])
        return text[0].upper() + text[1:]

    def show(self, test: bool) -> dict[str, Any]:
        """``{"changes", "comment"}``, as the execution module returns it."""
        return {"changes": self.changes, "comment": self.comment(test)}


def by_path(changes: Iterable[Change | NetworkChange]) -> dict[str, dict[str, object]]:
    """``{path: {"old", "new"}}`` of changes; several changes of a path become lists."""
    grouped: dict[str, list[Change | NetworkChange]] = {}
    for change in changes:
        grouped.setdefault(change.path, []).append(change)
    return {path: _both(those) for path, those in grouped.items()}


def _both(changes: list[Change | NetworkChange]) -> dict[str, object]:
    if len(changes) == 1:
        return {"old": changes[0].old, "new": changes[0].new}
    old = [change.old for change in changes if change.old is not None]
    new = [change.new for change in changes if change.new is not None]
    return {"old": old, "new": new}
