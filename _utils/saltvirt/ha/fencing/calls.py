"""The call by which the master has a hypervisor run a fence agent."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.answers.calls import Call
from saltvirt.ha.fencing.agents import FenceOutcome
from saltvirt.schema import Message

OFF, STATUS = "off", "status"


@dataclass(frozen=True)
class RunFenceRequest(Message):
    """Run a fence agent; see FenceSetting.

    action: STATUS, which changes nothing, or OFF, followed by a status query.
    """

    agent: str
    options: dict[str, str]
    password_file: str | None = None
    action: str = STATUS


RUN_FENCE = Call("ha_fence", RunFenceRequest, FenceOutcome)
