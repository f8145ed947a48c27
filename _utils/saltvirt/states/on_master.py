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
    data = said.get("data") if isinstance(said, dict) else None
    about = data.get(name) if isinstance(data, dict) else None
    if not isinstance(about, dict) or "result" not in about:
        parts = data.values() if isinstance(data, dict) else ()
        whys = [str(part["comment"]) for part in parts if _says(part)]
        nothing = f"{verb} gave no answer: {said}. {_WHERE[0].upper()}{_WHERE[1:]}"
        return answer(name, failures=whys or [nothing])
    changes, comment = about.get("changes", {}), str(about.get("comment", ""))
    if about["result"] is False:
        return answer(name, changes, failures=[comment])
    return answer(name, changes, comment, host.test)


def _says(part: object) -> bool:
    return isinstance(part, dict) and bool(part.get("comment"))
