"""Which entries of the log a user asks for."""

from __future__ import annotations

import datetime
import fnmatch
import re
import time
from dataclasses import dataclass

from saltvirt import errors, units
from saltvirt.operations.journal import times
from saltvirt.operations.journal.activity_log import LogEntry

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE = re.compile(r"([0-9]{1,9})\s*([smhdw])")
_EXPECTED = "an age (30m, 12h, 2d, 1w) or a time in UTC (2026-11-29, 2026-11-29T10:30)"


@dataclass(frozen=True)
class LogFilter:
    """since, before: times as entries have them. user, verb: shell patterns; None: all."""

    since: str | None = None
    before: str | None = None
    user: str | None = None
    verb: str | None = None

    @property
    def is_empty(self) -> bool:
        return self == LogFilter()

    def accepts(self, entry: LogEntry) -> bool:
        """Return whether the user asks for the entry."""
        if (self.since and entry.time < self.since) or (self.before and entry.time >= self.before):
            return False
        if self.user is not None and not fnmatch.fnmatchcase(entry.user, self.user):
            return False
        return self.verb is None or fnmatch.fnmatchcase(entry.verb, self.verb)


def parse(since: object, before: object, user: object, verb: object) -> LogFilter:
    """Return the filter of the runner's arguments. Raises InvalidInput."""
    parsed = LogFilter(
        _time(since, "since"), _time(before, "before"), _pattern(user, "user"),
        None if verb is None else _pattern(verb, "verb", "virt."),
    )  # fmt: skip
    if parsed.since and parsed.before and parsed.since >= parsed.before:
        raise errors.InvalidInput(
            f"since ({parsed.since}) is not earlier than before ({parsed.before})"
        )
    return parsed


def _pattern(value: object, argument: str, prefix: str = "") -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise errors.InvalidInput(f"{argument} must be a name, not {units.short_repr(value)}")
    return str(value).removeprefix(prefix)


def _time(value: object, argument: str) -> str | None:
    """Return the time that an argument names."""
    if value is None:
        return None
    if isinstance(value, (datetime.date, datetime.datetime)):  # as YAML reads it
        value = value.isoformat()
    text = str(value).strip()
    age = _AGE.fullmatch(text)
    if age:
        moment_s = max(0.0, time.time() - int(age[1]) * _SECONDS[age[2]])
        return times.recorded(moment_s)
    moment = _moment(text)
    if moment is None:
        raise errors.InvalidInput(f"{argument} {units.short_repr(value)} is not {_EXPECTED}")
    # strftime does not fill up a year before 1000
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def _moment(text: str) -> datetime.datetime | None:
    """Return the time of a text in ISO format, in UTC; None for another text."""
    if not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return None
    try:
        moment = datetime.datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.timezone.utc)
        return moment.astimezone(datetime.timezone.utc)
    except (ValueError, OverflowError):
        return None
