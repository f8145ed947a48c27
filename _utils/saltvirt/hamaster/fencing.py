"""``virt.fence``: a person switches a host off by its fences, or asks whether they would work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saltvirt import errors, plain
from saltvirt.fleet.client import Fleet
from saltvirt.ha.view import OFF, ON, TIMED_OUT
from saltvirt.hafence import agents
from saltvirt.hafence.agents import Outcome
from saltvirt.hafence.setting import FenceSetting
from saltvirt.hamaster.person import Person
from saltvirt.operations.operation import Checked, Reasons, Result

_SWITCH, _LOOK = "off", "status"


class FenceHost:
    """Switches a host off. What its fence then sees is written down as a person's word is. A fence
    that other hosts run is run by their minions, told by this master as all they do."""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self.fleet, self.host = fleet, str(host)
        self.person = Person(fleet, "fence")

    def check(self) -> Checked:
        """Whether each of its fences is reached and lets us in, by its status, from each host that
        is to run it."""
        reasons = Reasons()
        with reasons:
            levels = self._levels()
            rows: list[list[Any]] = [["fence", "agent", "from", "status", "reason"]]
            states = set()
            for place, fence in enumerate(levels, start=1):
                for host in fence.hosts or ("",):
                    with reasons:
                        found = self._status(host, fence)
                        rows.append([place, fence.agent, host, found.state, found.words])
                        states.add(found.state)
                        if found.state == TIMED_OUT:
                            where = f"fence {place}" + (f" from {host}" if host else "")
                            raise errors.OperationFailed(f"{where}: {found.words or found.state}")
            with reasons:
                if {ON, OFF} <= states:
                    raise errors.OperationFailed(
                        f"its fences do not agree whether {self.host} is on: "
                        "one of them switches another machine"
                    )
            with reasons:
                self._refuse_contradiction(states)
            words = reasons.words
            if words:
                comment = f"{self.host}: {'; '.join(words)}"
                return Checked(self.host, comment, more={"table": rows}, reasons=words)
            comment = f"{self.host} is {states.pop()} and would be switched off"
            return Checked(self.host, comment, {"power": {"new": OFF}}, {"table": rows})
        return reasons.checked(self.host)

    def _refuse_contradiction(self, states: set[str]) -> None:
        """Raises OperationFailed where a fence says that a host is off which lives."""
        within_s = 2 * self.person.config.policy.beat_s
        if OFF in states and self.person.engine.hears(self.host, within_s):
            raise errors.OperationFailed(
                f"its agent is heard, and a fence says that {self.host} is off: the fence switches "
                "another machine, or does not work: it would be a false proof"
            )

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, OperationFailed when no fence sees it off, or when that
        cannot be written down."""
        host, levels = self.host, self._levels()
        boot = self.person.engine.registry.host(host).boot
        self.person.tell(host, f"a person fences {host}")
        last, said = agents.in_turn(levels, host, self._off)
        if last.state != OFF:
            self.person.tell(host, f"{host} was not fenced: {'; '.join(said)}")
            raise errors.OperationFailed(f"{host} is not proven to be off: {'; '.join(said)}")
        text = f"{host} was switched off: {said[-1]}"
        try:
            self.person.wish(
                host, text, lambda known: replace(known, confirmed={**known.confirmed, host: boot})
            )
        except (errors.VirtError, OSError) as exc:
            self.person.tell(host, text)
            why = f"{text}; high availability does not know it: {exc}"
            raise errors.OperationFailed(why) from exc
        changes = {"power": {"new": OFF}}
        return Result(host, f"{text}{self.person.beside}", changes, {"said": said})

    def _levels(self) -> tuple[FenceSetting, ...]:
        levels = self.person.config.members[self.person.member(self.host)].fences
        if not levels:
            raise errors.NotFound(f"{self.host} has no fence: virt:ha:members:{self.host}:fences")
        return levels

    def _off(self, fence: FenceSetting) -> Outcome:
        if not fence.hosts:
            return agents.off(fence)
        return agents.by_first(fence.hosts, lambda host: self._from(host, fence, _SWITCH))

    def _status(self, host: str, fence: FenceSetting) -> Outcome:
        return self._from(host, fence, _LOOK) if host else agents.status(fence)

    def _from(self, host: str, fence: FenceSetting, action: str) -> Outcome:
        """What a host's minion says of it. No password is in what it is told."""
        told = {**replace(fence, hosts=()).to_answer(), "action": action}
        answer = self.fleet.one(host, "virt.ha_fence", told)
        if answer["state"] not in (OFF, ON, TIMED_OUT):
            raise errors.BadAnswer(f"{host}: virt.ha_fence answered {answer['state'][:20]!r}")
        return Outcome(answer["state"], plain.line(answer["words"]))
