"""Guests of the whole cloud as they shall be, by the master's runner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost

_WHERE = "this state is for an orchestration on the master"


def deployed(host: StateHost, name: str, **given: Any) -> Answer:
    """See ``virt.deployed``."""
    if "saltutil.runner" not in host.salt:
        return answer(name, failures=[_WHERE])
    deployment = str(name)
    arguments = {**given, "deployment": deployment, "test": host.test}
    told = host.salt["saltutil.runner"]("virt.deployed", kwarg=arguments)
    if not isinstance(told, dict) or deployment not in told.get("data", {}):
        why = f"virt.deployed gave no answer: {told}. {_WHERE[0].upper()}{_WHERE[1:]}"
        return answer(name, failures=[why])
    about = told["data"][deployment]
    changes = about.get("changes", {})
    if about["result"] is False:
        return answer(name, changes, failures=[about["comment"]])
    return answer(name, changes, about["comment"], host.test)
