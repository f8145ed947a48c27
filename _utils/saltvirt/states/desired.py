"""What a state answers that brings one thing of the host's to what is given."""

import inspect
from dataclasses import dataclass, field

from saltvirt.errors import VirtError
from saltvirt.states import result


@dataclass
class Outcome:
    """What a state changed; with ``test`` what it would change.

    subject: e.g. ``network lab``. changes: ``{path: {"old", "new"}}``. done: the words for it,
    e.g. ``["defined", "started"]``. notes: sentences that a person should read. quiet: what is
    said of the subject when nothing changes.
    """

    subject: str
    changes: dict = field(default_factory=dict)
    done: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    quiet: str = "is as it should be"

    def switch(self, what, old, new, word):
        """Notes one setting that changes; True when it does."""
        if old == new:
            return False
        self.changes[what] = {"old": old, "new": new}
        self.done.append(word)
        return True

    def comment(self, test):
        """One line of what was done, then the notes."""
        if self.done:
            would = "would be " if test else ""
            first = f"{self.subject} {would}{', '.join(dict.fromkeys(self.done))}"
        elif self.changes:
            first = f"{self.subject} {'would be ' if test else ''}updated"
        else:
            first = f"{self.subject} {self.quiet}"
        return ". ".join([first, *self.notes])


def by_path(changes):
    """``{path: {"old", "new"}}`` of a list of changes; several of one path become lists."""
    found = {}
    for change in changes:
        found.setdefault(change.path, []).append(change)
    return {path: _both(those) for path, those in found.items()}


def _both(changes):
    if len(changes) == 1:
        return {"old": changes[0].old, "new": changes[0].new}
    old = [change.old for change in changes if change.old is not None]
    new = [change.new for change in changes if change.new is not None]
    return {"old": old, "new": new}


def only_known(kwargs, function):
    """Refuses arguments that the function, a state, does not have. Raises InvalidInput.

    Salt's own (``__id__`` and the like) are passed over.
    """
    parameters = inspect.signature(function).parameters.values()
    known = [p.name for p in parameters if p.kind != p.VAR_KEYWORD]
    result.more(kwargs, (), known, f"virt.{function.__name__}")


def answer(name, test, work):
    """Salt's dictionary for a state. ``work()`` returns an Outcome or raises a VirtError."""
    try:
        outcome = work()
    except VirtError as exc:
        return result.answer(name, failures=[exc])
    comment = outcome.comment(test)
    return result.answer(name, outcome.changes, comment[0].upper() + comment[1:], test)
