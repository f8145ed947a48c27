"""A guest that shall have a backup of a certain age at most, by the master's runner."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from saltvirt import units
from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost

_WHERE = "this state is for an orchestration on the master"
_WHEN = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z")


def backed_up(
    host: StateHost, name: str, now_s: float, hours: object = 24, to: str | None = None
) -> Answer:
    """See ``virt.backed_up``. now_s: seconds since 1970."""
    limit_s = units.parse_number(hours, "hours") * 3600
    if "saltutil.runner" not in host.salt:
        return answer(name, failures=[_WHERE])
    listed = _asked(host, "virt.backups", name=name, to=to)
    young = [one for one in _good(listed) if 0 <= now_s - one[0] < limit_s]
    if young:
        when_s, target, ident = max(young)
        age = f"{(now_s - when_s) / 3600:.1f} hours old"
        return answer(name, comment=f"{name} has the backup {ident} at {target}, {age}")
    made = _asked(host, "virt.backup", name=name, to=to, test=host.test)
    about = made.get(name)
    if not isinstance(about, dict):
        why = next((one.get("comment") for one in made.values() if isinstance(one, dict)), made)
        return answer(name, failures=[f"virt.backup gave no answer: {why}"])
    if about.get("result") is False:
        return answer(name, about.get("changes"), failures=[about.get("comment")])
    return answer(name, about.get("changes"), str(about.get("comment")), host.test)


def _asked(host: StateHost, verb: str, **kwarg: Any) -> dict[str, Any]:
    told = host.salt["saltutil.runner"](verb, kwarg=kwarg)
    data = told.get("data") if isinstance(told, dict) else None
    return data if isinstance(data, dict) else {"": {"comment": str(told)}}


def _good(listed: dict[str, Any]) -> Iterator[tuple[float, str, str]]:
    """(seconds since 1970, target, name) of backups that are good."""
    for target, several in listed.items():
        for one in several if isinstance(several, list) else ():
            match = _WHEN.fullmatch(str(one.get("when"))) if isinstance(one, dict) else None
            if match and one.get("wrong") is None:
                time = tuple(map(int, match.groups()))
                yield float(calendar.timegm(time)), target, str(one.get("ident"))
