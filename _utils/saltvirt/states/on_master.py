"""States that call the master's runner, for orchestrations on the master."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost

_MASTER_ONLY = "this state is for an orchestration on the master"


def run_on_master(host: StateHost, name: str, verb: str, arguments: dict[str, Any]) -> Answer:
    """Call a runner function, and convert its answer to that of a state."""
    if "saltutil.runner" not in host.salt:
        return answer(name, failures=[_MASTER_ONLY])
    runner_kwargs = {**arguments, "test": host.test}
    response = host.salt["saltutil.runner"](verb, kwarg=runner_kwargs)
    data = response.get("data") if isinstance(response, dict) else None
    guest_answer = data.get(name) if isinstance(data, dict) else None
    if not isinstance(guest_answer, dict) or "result" not in guest_answer:
        parts = data.values() if isinstance(data, dict) else ()
        reasons = [str(part["comment"]) for part in parts if _has_comment(part)]
        nothing = f"{verb} gave no answer: {response}. {_MASTER_ONLY[0].upper()}{_MASTER_ONLY[1:]}"
        return answer(name, failures=reasons or [nothing])
    changes, comment = guest_answer.get("changes", {}), str(guest_answer.get("comment", ""))
    if guest_answer["result"] is False:
        return answer(name, changes, failures=[comment])
    return answer(name, changes, comment, host.test)


def _has_comment(part: object) -> bool:
    return isinstance(part, dict) and bool(part.get("comment"))
