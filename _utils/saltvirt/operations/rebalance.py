"""Make the cloud even."""

from __future__ import annotations

from typing import Any

from saltvirt import units
from saltvirt.fleet.client import Fleet
from saltvirt.operations import inventory, keepers, moves
from saltvirt.operations import migrate as migrating  # the name is an argument's here
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.operations.report import Report
from saltvirt.placement import account, choose, facts, rebalance
from saltvirt.placement.policy import PlacementPolicy

ABOUT = "rebalance"


class Rebalance:
    """Makes the moves that make the cloud more even, one by one.

    After each its hosts are asked again; when the cloud is not as the plan predicted (someone
    else deployed or moved something) the rest is left, with that reason. threshold: a cloud whose
    score is below it is left alone. migrate: moves.Migrate. plans: gets what is planned, for
    ``migrate``, so that the hosts are asked once for all of it. keeper: whose room is left free:
    the plan ends before the first move that would take of it.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: PlacementPolicy,
        threshold: float,
        migrate: moves.Migrate,
        report: Report,
        plans: migrating.Plans | None = None,
        keeper: keepers.Keeper | None = None,
    ) -> None:
        self.plans = {} if plans is None else plans
        self.fleet, self.policy, self.threshold = fleet, policy, threshold
        self.migrate, self.report, self.keeper = migrate, report, keeper

    def check(self) -> Checked:
        """The moves, with the score after each."""
        reasons = Reasons()
        with reasons:
            hosts, planned, why = self._plan()
            score = rebalance.score(hosts, self.policy)
            rows: list[list[Any]] = [["guest", "from", "to", "score after"]]
            rows += [[m.guest, m.source, m.target, round(m.after, 3)] for m in planned]
            text = f"the score is {score:.3f}, moves begin at {self.threshold}"
            comment, changes = (
                "; ".join(filter(None, (units.counted(len(planned), "move"), text, why))),
                {m.guest: m.target for m in planned},
            )
            return Checked(ABOUT, comment, {"moved": changes}, {"score": score, "table": rows})
        return reasons.checked(ABOUT)

    def run(self) -> Result:
        """Raises NotFound where there is no host."""
        hosts, planned, why = self._plan()
        cloud = {host.name: host for host in hosts if not host.maintenance}
        self._keep(cloud, planned)
        if why:
            self.report.step("warning", why)
        done = "; ".join(filter(None, ("rebalanced", why)))
        return self.move(cloud, planned).result(ABOUT, done)

    def _keep(self, cloud: dict[str, facts.Host], planned: list[rebalance.RebalanceMove]) -> None:
        """Writes down where each guest goes; where that host refuses, the next best."""
        for move in planned:
            source = cloud[move.source]
            guest = next(guest for guest in source.guests if guest.name == move.guest)
            others = [host for name, host in cloud.items() if name != move.source]
            decision = choose.choose(others, facts.of_guest(guest, source), self.policy)
            self.plans[move.guest] = migrating.planned(
                cloud, move.source, decision, self.policy, move.target
            )
            cloud = rebalance.moved(cloud, move)

    def move(
        self, cloud: dict[str, facts.Host], planned: list[rebalance.RebalanceMove]
    ) -> moves.MovesOutcome:
        """Makes the planned moves. cloud: name to host, of those that are not in maintenance."""
        outcome = moves.MovesOutcome()
        for number, move in enumerate(planned):
            one = moves.GuestMove(move.guest, move.source, move.target)
            step = moves.run([one], self.migrate, self.report)
            outcome.add(step)
            cloud = self._asked_again(cloud, {move.source, move.target, *step.moved.values()})
            now = rebalance.score([*cloud.values()], self.policy)
            if step.left or abs(now - move.after) > rebalance.LEAST_GAIN:
                why = f"the cloud's score is {now:.3f}, not {move.after:.3f} as planned; plan again"
                outcome.left.update({m.guest: why for m in planned[number + 1 :]})
                break
        return outcome

    def _plan(self) -> tuple[list[facts.Host], list[rebalance.RebalanceMove], str]:
        """(The hosts, the moves, what is to be said of room that is kept.)"""
        hosts, _ = inventory.gather(self.fleet)
        stay = keepers.words(self.fleet.opts)  # who keeps them would take them back
        planned = rebalance.plan(hosts, self.policy, self.threshold, stay=stay)
        room = self.keeper.room(hosts) if self.keeper else None
        if room is None:
            return hosts, planned, ""
        guests = {(host.name, guest.name): guest for host in hosts for guest in host.guests}
        where: dict[str, str] = {}
        for number, move in enumerate(planned):
            guest = guests[where.setdefault(move.guest, move.source), move.guest]
            broken = room.refusal(move.target, guest)
            words = f"{move.guest} on {move.target} would break virt:ha:reserve: {broken}"
            if broken and room.warns:
                return hosts, planned, words
            if broken:
                return hosts, planned[:number], f"the plan ends here: {words}"
            room.take(move.target, guest)
        return hosts, planned, ""

    def _asked_again(self, cloud: dict[str, facts.Host], hosts: set[str]) -> dict[str, facts.Host]:
        """The cloud with these hosts as they are now."""
        found, _ = inventory.gather(self.fleet, sorted(hosts))
        kept = [host for name, host in cloud.items() if name not in hosts]
        there = account.joined([*kept, *(host for host in found if not host.maintenance)])
        return {host.name: host for host in there}
