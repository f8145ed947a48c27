"""States that are a verb of the master's runner: for an orchestration on the master."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost

_WHERE = "this state is for an orchestration on the master"


def told(host: StateHost, name: str, verb: str, arguments: dict[str, Any]) -> Answer:
    """What the verb answers of that name, as the state's answer."""
    if "saltutil.runner" not in host.salt:
        return answer(name, failures=[_WHERE])
    asked = {**arguments, "test": host.test}
    said = host.salt["saltutil.runner"](verb, kwarg=asked)
    if not isinstance(said, dict) or name not in said.get("data", {}):
        why = f"{verb} gave no answer: {said}. {_WHERE[0].upper()}{_WHERE[1:]}"
        return answer(name, failures=[why])
    about = said["data"][name]
    changes = about.get("changes", {})
    if about["result"] is False:
        return answer(name, changes, failures=[about["comment"]])
    return answer(name, changes, about["comment"], host.test)
