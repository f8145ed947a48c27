"""Record each call of a verb that may have changed something in the log of this master."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt import errors
from saltvirt.fleet import requester
from saltvirt.operations.core.result import Answer
from saltvirt.operations.journal import activity_log, times
from saltvirt.operations.journal.activity_log import LogEntry
from saltvirt.rights import confidential

# verbs that change nothing
QUERIES = frozenset({
    "list", "query", "locate", "vm_info", "addresses", "snapshots", "watch", "host_info",
    "versions", "next_host", "explain", "capacity", "networks", "pools", "volumes", "images", "top",
    "log", "deployments", "migratable", "migrate_unfinished", "backups", "backup_ls", "metrics",
    "certs", "owners", "ha_status", "ha_simulate", "display", "screenshot", "help",
})  # fmt: skip
# verbs whose comments may contain what a guest has printed, or what a user has typed
PRIVATE = frozenset({"exec", "put", "get", "console", "ticket"})
# errors of calls that began nothing
_REFUSED = (errors.Denied, errors.NotFound, errors.InvalidInput)


def recorded(
    function: Callable[..., Answer],
    bound: inspect.BoundArguments,
    injected: object,
    call: Callable[[], Answer],
) -> Answer:
    """Return what the call returns, or raise what it raises, and record the result. injected: as
    for access_check.answer."""
    opts, verb = function.__globals__.get("__opts__") or {}, function.__name__
    if verb in QUERIES or "cachedir" not in opts or _only_shows(verb, bound):
        return call()
    call_entry = _CallEntry(opts, verb, bound.arguments, injected)
    with confidential.collect() as redactions:
        try:
            answer = call()
        except _REFUSED:
            raise
        except Exception as exc:
            text = exc.text if isinstance(exc, errors.VirtError) else f"internal error: {exc!r}"
            subject = bound.arguments.get("name") or bound.arguments.get("host")
            outcome = _Outcome(None if subject is None else str(subject), False, text)
            call_entry.record([outcome], redactions)
            raise
    call_entry.record(_results(verb, bound.arguments, answer), redactions)
    return answer


def _only_shows(verb: str, bound: inspect.BoundArguments) -> bool:
    """Return whether the call only shows what the verb would do, or a state."""
    defaults = {name: entry.default for name, entry in bound.signature.parameters.items()}
    arguments = {**defaults, **bound.arguments.get("kwargs", {}), **bound.arguments}
    if verb == "maintenance" and arguments["state"] is None and arguments["reason"] is None:
        return True
    return bool(arguments.get("test")) or arguments.get("apply") is False


@dataclass(frozen=True)
class _Outcome:
    """The result for one guest or host. existence: as in LogEntry."""

    subject: str | None
    result: bool
    comment: object
    host: object = None
    existence: str | None = None


def _results(verb: str, arguments: Mapping[str, Any], answer: Answer) -> Iterator[_Outcome]:
    """Yield the results in an answer."""
    for subject, part in answer.items():
        if isinstance(part, dict) and isinstance(part.get("result"), bool):
            existence = activity_log.CREATED if _restores_new(verb, arguments, part) else None
            comment = part.get("comment") or ""
            yield _Outcome(subject, part["result"], comment, part.get("host"), existence)
            if verb == "deployed":
                yield from _deployed(subject, part.get("changes") or {})


def _deployed(deployment: str, changes: Mapping[str, Any]) -> Iterator[_Outcome]:
    """Yield the guests that a deployment has created and removed."""
    for guest, change in changes.items():
        if isinstance(change, dict) and {"old", "new"} <= change.keys():
            host = change["new"] or change["old"]
            existence = activity_log.CREATED if change["new"] else activity_log.REMOVED
            comment = f"{existence} by the deployment {deployment}"
            yield _Outcome(guest, True, comment, host, existence)


def _restores_new(verb: str, arguments: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Return whether a backup was restored as a guest of that name that did not exist."""
    is_elsewhere = any(arguments.get(word) for word in ("in_place", "disk", "new"))
    return verb == "backup_restore" and bool(part.get("changes")) and not is_elsewhere


class _CallEntry:
    """The entries of one call of a verb."""

    def __init__(
        self, opts: dict[str, Any], verb: str, arguments: Mapping[str, Any], injected: object
    ) -> None:
        self._opts, self._verb, self._arguments = opts, verb, arguments
        self._user, self._start_s = calling_user(opts, injected), time.monotonic()

    def record(
        self,
        outcomes: Iterator[_Outcome] | list[_Outcome],
        redactions: list[confidential.Redaction],
    ) -> None:
        """Append entries to the log. redactions: what the call has said of other guests."""
        outcomes = [*outcomes]
        public_comments = confidential.redact([item.comment for item in outcomes], redactions)
        entries = [
            self._entry(outcome, public_comment)
            for outcome, public_comment in zip(outcomes, public_comments, strict=True)
        ]
        if entries:
            activity_log.append(self._opts, entries)

    def _entry(self, outcome: _Outcome, public_comment: object) -> LogEntry:
        subject, comment, host = outcome.subject, outcome.comment, outcome.host
        new, name = self._arguments.get("new"), self._arguments.get("name")
        if subject is not None and subject == new and isinstance(name, str):
            subject = name  # of a guest that was renamed or copied
        is_host = subject is not None and subject == self._arguments.get("host")
        is_about_host = is_host and "name" not in self._arguments
        is_private = self._verb in PRIVATE or public_comment == comment
        return LogEntry(
            time=times.recorded(),
            seconds=round(time.monotonic() - self._start_s, 1),
            user=self._user,
            verb=self._verb,
            guest=None if is_about_host else subject,
            host=subject if is_about_host else host if isinstance(host, str) else None,
            result=outcome.result,
            comment="" if self._verb in PRIVATE else activity_log.shorten(comment),
            new=new if isinstance(new, str) and new != subject else None,
            public_comment=None if is_private else activity_log.shorten(public_comment),
            existence=outcome.existence,
        )


def calling_user(opts: dict[str, Any], injected: object = None) -> str:
    """Return the user who calls the verb, as far as it is known. injected: as for
    requesting_user."""
    try:
        user = requester.requesting_user(opts, injected)
    except errors.Denied:
        user = None
    if user is not None:
        return user
    if opts.get("__cli") == requester.COMMAND_LINE:
        return os.environ.get("SUDO_USER") or str(opts.get("user") or "root")
    return injected if isinstance(injected, str) and injected else "master"
