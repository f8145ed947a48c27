"""Handlers of the calls about fences: run a fence agent for a management board that the master
cannot reach."""

from __future__ import annotations

from saltvirt import errors
from saltvirt.answers.calls import MinionContext, handles
from saltvirt.ha.fencing import agents, calls, setting
from saltvirt.ha.fencing.agents import FenceOutcome
from saltvirt.ha.fencing.setting import FenceSetting


@handles(calls.RUN_FENCE)
def run_fence(_host: MinionContext, request: calls.RunFenceRequest) -> FenceOutcome:
    """Run a fence agent, and return the state of the fenced host.

    Raises InvalidInput for an invalid agent, option or action; OperationFailed if the agent is not
    installed, or if others can read the password file.
    """
    fence = setting.validate(
        calls.RUN_FENCE.function,
        FenceSetting(request.agent, request.options, request.password_file),
    )
    if request.action not in (calls.OFF, calls.STATUS):
        raise errors.InvalidInput(f"action must be {calls.STATUS} or {calls.OFF}")
    return agents.off(fence) if request.action == calls.OFF else agents.status(fence)
