"""Guests that high availability keeps, by the master's runner: what it is told to keep is the
master's, and no hypervisor's to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost

_WHERE = "this state is for an orchestration on the master"


def enabled(host: StateHost, name: str, **given: Any) -> Answer:
    """See ``virt.ha_enabled``."""
    asked = {word: value for word, value in given.items() if value is not None}
    return _told(host, name, "virt.ha_enable", asked)


def disabled(host: StateHost, name: str) -> Answer:
    """See ``virt.ha_disabled``."""
    return _told(host, name, "virt.ha_disable", {"missing": True})


def _told(host: StateHost, name: str, verb: str, asked: dict[str, Any]) -> Answer:
    if "saltutil.runner" not in host.salt:
        return answer(name, failures=[_WHERE])
    arguments = {"name": name, **asked, "test": host.test}
    told = host.salt["saltutil.runner"](verb, kwarg=arguments)
    found = told.get("data", told) if isinstance(told, dict) else {}
    about = found.get(name) if isinstance(found, dict) else None
    if not isinstance(about, dict) or "result" not in about:
        why = f"{verb} gave no answer: {told}. {_WHERE[0].upper()}{_WHERE[1:]}"
        return answer(name, failures=[why])
    changes = about.get("changes", {})
    if about["result"] is False:
        return answer(name, changes, failures=[about["comment"]])
    return answer(name, changes, about["comment"], host.test)
