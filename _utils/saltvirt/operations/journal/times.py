"""Times in the records of this master: in UTC, to the second, in an order that text has too."""

from __future__ import annotations

import calendar
import time

_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def recorded(time_s: float | None = None) -> str:
    """Return a time as a record has it. time_s: seconds since 1970; None: now."""
    return time.strftime(_FORMAT, time.gmtime(time_s))


def seconds(text: str) -> float:
    """Return the seconds since 1970 of a recorded time. Raises ValueError."""
    return calendar.timegm(time.strptime(text, _FORMAT))
