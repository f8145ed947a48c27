"""Make the cloud even."""

from __future__ import annotations

from typing import Any

from saltvirt import units
from saltvirt.fleet.client import Fleet
from saltvirt.operations import inventory, moves
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.operations.report import Report
from saltvirt.placement import facts, rebalance
from saltvirt.placement.policy import PlacementPolicy

ABOUT = "rebalance"


class Rebalance:
    """Makes the moves that make the cloud more even, one by one.

    After each the hosts are asked again; when the cloud is not as the plan predicted (someone else
    deployed or moved something) the rest is left, with that reason. threshold: a cloud whose score
    is below it is left alone. migrate: moves.Migrate.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: PlacementPolicy,
        threshold: float,
        migrate: moves.Migrate,
        report: Report,
    ) -> None:
        self.fleet, self.policy, self.threshold = fleet, policy, threshold
        self.migrate, self.report = migrate, report

    def check(self) -> Checked:
        """The moves, with the score after each."""
        reasons = Reasons()
        with reasons:
            hosts, planned = self._plan()
            score = rebalance.score(hosts, self.policy)
            rows: list[list[Any]] = [["guest", "from", "to", "score after"]]
            rows += [[m.guest, m.source, m.target, round(m.after, 3)] for m in planned]
            text = f"the score is {score:.3f}, moves begin at {self.threshold}"
            comment, changes = (
                f"{units.counted(len(planned), 'move')}; {text}",
                {m.guest: m.target for m in planned},
            )
            return Checked(ABOUT, comment, {"moved": changes}, {"score": score, "table": rows})
        return reasons.checked(ABOUT)

    def run(self) -> Result:
        """Raises NotFound where there is no host."""
        _, planned = self._plan()
        return self.move(planned).result(ABOUT, "rebalanced")

    def move(self, planned: list[rebalance.RebalanceMove]) -> moves.MovesOutcome:
        """Makes the planned moves."""
        outcome = moves.MovesOutcome()
        for number, move in enumerate(planned):
            one = moves.GuestMove(move.guest, move.source, move.target)
            step = moves.run([one], self.migrate, self.report)
            outcome.add(step)
            now = rebalance.score(self.open_hosts(), self.policy)
            if step.left or abs(now - move.after) > rebalance.LEAST_GAIN:
                why = f"the cloud's score is {now:.3f}, not {move.after:.3f} as planned; plan again"
                outcome.left.update({m.guest: why for m in planned[number + 1 :]})
                break
        return outcome

    def _plan(self) -> tuple[list[facts.Host], list[rebalance.RebalanceMove]]:
        hosts, _ = inventory.gather(self.fleet)
        return hosts, rebalance.plan(hosts, self.policy, self.threshold)

    def open_hosts(self) -> list[facts.Host]:
        """The hosts that are not in maintenance."""
        hosts, _ = inventory.gather(self.fleet)
        return [host for host in hosts if not host.maintenance]
