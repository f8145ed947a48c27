"""The one shape of all that the runner does: it is asked what it would do, or told to do it.

An operation gets all that it works with when it is made: a Fleet, a report.Report, what the user
said. ``check`` is ``test=True``: it gathers every reason against it and changes nothing. ``run``
does not rely on a ``check`` before it: under its own locks it looks at everything again, and the
first reason against it is raised.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Protocol

from saltvirt import errors, sanitize
from saltvirt.operations.core import result

log = logging.getLogger(__name__)


class Operation(Protocol):
    """What a verb of the runner does."""

    def check(self) -> Checked | Several:
        """What it would do, or every reason why it would not. Changes nothing."""

    def run(self) -> Result | Several:
        """Does it, and takes back what it began when it fails. Raises VirtError."""


@dataclass(frozen=True)
class Result:
    """What was done.

    about: the guest, the host or the set that it was done to. comment: one line. changes: as in the
    answer of a state. more: what else the answer has. complete: False when a part of it failed, or
    not every host was heard: the exit code is 1 then.
    """

    subject: str
    comment: str
    changes: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    complete: bool = True

    def answer(self) -> dict[str, Any]:
        """As the runner gives it back."""
        data = result.done(self.subject, self.comment, self.changes, **self.details)
        if not self.complete:
            data[self.subject]["result"] = False
            data["retcode"] = 1
        return data


@dataclass(frozen=True)
class Several:
    """What was done, or would be, to several: a Result of each."""

    parts: tuple[Result, ...]

    def answer(self) -> dict[str, Any]:
        """As the runner gives it back: one is short, then all of it is."""
        data: dict[str, Any] = {}
        for part in self.parts:
            data.update(part.answer())
        return data


@dataclass(frozen=True)
class Checked(Result):
    """What would be done, in the words of a Result; nothing was.

    reasons: every reason why it, or a part of it, would not be done. nothing: there is nothing to
    do. complete: False when not every host was heard.
    """

    reasons: tuple[str, ...] = ()
    nothing: bool = False

    def answer(self) -> dict[str, Any]:
        """As the runner gives it back: ``result`` is None where it would be done."""
        if self.reasons:
            subject = sanitize.one_line(self.subject)
            data = result.failed(subject, self.comment)
            if self.changes or self.details:  # of the parts that would be
                data[subject].update(changes=self.changes, **self.details)
            return data
        if self.nothing:
            return result.done(self.subject, self.comment, self.changes, **self.details)
        data = result.planned(self.subject, self.comment, self.changes, **self.details)
        return data if self.complete else {**data, "retcode": 1}


class Reasons:
    """Why an operation is not done.

    Each question that can say so is asked in ``with reasons:``. For a check what it raises is
    kept, and the next question is asked; for a run (``first``) it is raised at once.
    """

    def __init__(self, *, first: bool = False) -> None:
        self._first = first
        self._errors: list[errors.VirtError] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, exc: BaseException | None, _traceback: object) -> bool:
        if self._first or not isinstance(exc, errors.VirtError):
            return False
        self._errors.append(exc)
        return True

    def raise_first(self) -> None:
        """Raises the first reason, when there is one: what follows could not be asked."""
        if self._errors:
            raise self._errors[0]

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentences, each once."""
        return tuple(dict.fromkeys(exc.text for exc in self._errors))

    def checked(self, subject: str) -> Checked:
        """The Checked of an operation that would not be done."""
        return Checked(subject, "; ".join(self.texts), reasons=self.texts)


def failure(error: Exception, part: str) -> str:
    """Why a part of an operation failed, in one line. part: the part. An error that is none of
    ours, such as a full disk of the master, is logged: it does not end what is done to others."""
    if isinstance(error, errors.VirtError):
        return error.text
    log.error("%s failed", part, exc_info=error)
    return sanitize.one_line(f"{type(error).__name__}: {error}")


def perform(operation: Operation, test: bool = False) -> dict[str, Any]:
    """The runner's answer: of the check with ``test``, else of the run."""
    return (operation.check() if test else operation.run()).answer()
