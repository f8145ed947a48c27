"""The interface of all operations of the runner: ``check`` and ``run``.

An operation gets all that it needs when it is created: a Fleet, a report.Report, the user's
arguments. ``check`` implements ``test=True``: it collects every reason against the operation and
changes nothing. ``run`` does not rely on an earlier ``check``: it checks everything again under its
own locks, and raises the first reason.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Protocol

from saltvirt import errors, sanitize
from saltvirt.operations.core import result

log = logging.getLogger(__name__)


class Operation(Protocol):
    """An operation of the runner."""

    def check(self) -> Checked | Several:
        """Return what the operation would do, or every reason against it. Changes nothing."""

    def run(self) -> Result | Several:
        """Perform the operation; if it fails, undo what it did. Raises VirtError."""


@dataclass(frozen=True)
class Result:
    """The result of an operation.

    subject: the guest, the host or the set that it changed. comment: one line. changes: as in the
    result of a state. details: further keys of the answer. complete: False if a part failed, or a
    host did not answer; the exit code is then 1.
    """

    subject: str
    comment: str
    changes: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    complete: bool = True

    def answer(self) -> dict[str, Any]:
        """Return the answer of the runner."""
        data = result.done(self.subject, self.comment, self.changes, **self.details)
        if not self.complete:
            data[self.subject]["result"] = False
            data["retcode"] = 1
        return data


@dataclass(frozen=True)
class Several:
    """The results of an operation on several guests."""

    parts: tuple[Result, ...]

    def answer(self) -> dict[str, Any]:
        """Return the answer of the runner; its exit code is 1 if one part is incomplete."""
        data: dict[str, Any] = {}
        for part in self.parts:
            data.update(part.answer())
        return data


@dataclass(frozen=True)
class Checked(Result):
    """What an operation would do.

    reasons: every reason against the operation, or a part of it. nothing: no change is necessary.
    complete: False if a host did not answer.
    """

    reasons: tuple[str, ...] = ()
    nothing: bool = False

    def answer(self) -> dict[str, Any]:
        """Return the answer of the runner; ``result`` is None if the operation would be
        performed."""
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
    """Collects the reasons against an operation.

    Run each check in ``with reasons:``. In a ``check``, the error is stored and the next check
    follows; in a ``run`` (``first``), it is raised at once.
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
        """Raise the first reason, if there is one, because the next checks depend on the previous
        ones."""
        if self._errors:
            raise self._errors[0]

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the distinct messages."""
        return tuple(dict.fromkeys(exc.text for exc in self._errors))

    def checked(self, subject: str) -> Checked:
        """Return the Checked of an operation that is refused."""
        return Checked(subject, "; ".join(self.texts), reasons=self.texts)


def failure(error: Exception, part: str) -> str:
    """Return in one line why a part of an operation failed. part: its description. An unexpected
    error, such as a full disk of the master, is logged, so that the other parts continue."""
    if isinstance(error, errors.VirtError):
        return error.text
    log.error("%s failed", part, exc_info=error)
    return sanitize.one_line(f"{type(error).__name__}: {error}")


def perform(operation: Operation, test: bool = False) -> dict[str, Any]:
    """Return the runner's answer: of the check if ``test``, else of the run."""
    return (operation.check() if test else operation.run()).answer()
