"""``virt.fence``: an operator switches a host off with its fences, or tests them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saltvirt import errors, sanitize
from saltvirt.fleet.client import Fleet
from saltvirt.ha.fencing import agents, calls
from saltvirt.ha.fencing.agents import FenceOutcome
from saltvirt.ha.fencing.setting import FenceSetting
from saltvirt.ha.manager.admin_request import AdminRequest
from saltvirt.ha.model.view import OFF, ON, TIMED_OUT
from saltvirt.operations.core.operation import Checked, Reasons, Result


class FenceHost:
    """Switch a host off. The status that its fence reports afterwards is recorded like an
    operator's confirmation. A fence that other hosts run is run by their minions."""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self.fleet, self.host = fleet, str(host)
        self.request = AdminRequest(fleet, "fence")

    def check(self) -> Checked:
        """Read the status from each of its fences, from each host that is to run it, to test the
        connection and the password."""
        reasons = Reasons()
        with reasons:
            levels = self._levels()
            rows: list[list[Any]] = [["fence", "agent", "from", "status", "reason"]]
            states = set()
            for level, fence in enumerate(levels, start=1):
                for host in fence.hosts or ("",):
                    with reasons:
                        outcome = self._status(host, fence)
                        rows.append([level, fence.agent, host, outcome.state, outcome.message])
                        states.add(outcome.state)
                        if outcome.state == TIMED_OUT:
                            label = f"fence {level}" + (f" from {host}" if host else "")
                            raise errors.OperationFailed(
                                f"{label}: {outcome.message or outcome.state}"
                            )
            with reasons:
                if {ON, OFF} <= states:
                    raise errors.OperationFailed(
                        f"the fences of {self.host} report different states: one of them controls "
                        "another machine"
                    )
            with reasons:
                self._refuse_contradiction(states)
            messages = reasons.texts
            if messages:
                comment = f"{self.host}: {'; '.join(messages)}"
                return Checked(self.host, comment, details={"table": rows}, reasons=messages)
            comment = f"{self.host} is {states.pop()} and would be switched off"
            return Checked(self.host, comment, {"power": {"new": OFF}}, {"table": rows})
        return reasons.checked(self.host)

    def _refuse_contradiction(self, states: set[str]) -> None:
        """Raise OperationFailed if a fence reports a host as off that is alive."""
        within_s = 2 * self.request.config.policy.beat_s
        if OFF in states and self.request.engine.hears(self.host, within_s):
            raise errors.OperationFailed(
                f"a fence reports {self.host} as off, but the agent of {self.host} responds: the "
                "fence controls another machine or does not work, and would be a false proof"
            )

    def run(self) -> Result:
        """Raises NotFound, InvalidInput; OperationFailed if no fence reports the host as off, or if
        that cannot be saved."""
        host, levels = self.host, self._levels()
        boot = self.request.engine.registry.host(host).boot
        self.request.publish(host, f"an operator fences {host}")
        outcome, reports = agents.try_levels(levels, host, self._off)
        if outcome.state != OFF:
            self.request.publish(host, f"{host} was not fenced: {'; '.join(reports)}")
            raise errors.OperationFailed(f"{host} is not proven to be off: {'; '.join(reports)}")
        text = f"{host} was switched off: {reports[-1]}"
        try:
            self.request.submit(
                host,
                text,
                lambda desired: replace(desired, confirmed={**desired.confirmed, host: boot}),
            )
        except (errors.VirtError, OSError) as exc:
            self.request.publish(host, text)
            message = f"{text}; high availability could not record that: {exc}"
            raise errors.OperationFailed(message) from exc
        changes = {"power": {"new": OFF}}
        return Result(host, f"{text}{self.request.notice}", changes, {"reports": reports})

    def _levels(self) -> tuple[FenceSetting, ...]:
        levels = self.request.config.members[self.request.member(self.host)].fences
        if not levels:
            raise errors.NotFound(
                f"no fence is configured for {self.host}: set virt:ha:members:{self.host}:fences"
            )
        return levels

    def _off(self, fence: FenceSetting) -> FenceOutcome:
        if not fence.hosts:
            return agents.off(fence)
        return agents.try_hosts(fence.hosts, lambda host: self._run_from(host, fence, calls.OFF))

    def _status(self, host: str, fence: FenceSetting) -> FenceOutcome:
        return self._run_from(host, fence, calls.STATUS) if host else agents.status(fence)

    def _run_from(self, host: str, fence: FenceSetting, action: str) -> FenceOutcome:
        """Return the outcome from a host's minion. The arguments contain no password."""
        request = calls.RunFenceRequest(fence.agent, fence.options, fence.password_file, action)
        outcome = calls.RUN_FENCE.ask(self.fleet, host, request)
        if outcome.state not in (OFF, ON, TIMED_OUT):
            raise errors.BadAnswer(
                f"{host}: {fence.agent} returned the unknown state {outcome.state[:20]!r}"
            )
        return FenceOutcome(outcome.state, sanitize.one_line(outcome.message))
