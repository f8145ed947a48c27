"""Make the cloud even."""

from __future__ import annotations

from collections.abc import Collection
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
    else deployed or moved something) the rest is left, with that reason. A guest that can go
    nowhere by its host's word, or whose move failed, stays, and the rest is planned without it.
    stay: guests that a person leaves where they are. threshold: a cloud whose
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
        stay: Collection[str] = (),
    ) -> None:
        self.stay, self._pinned = frozenset(stay), dict[str, str]()
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
            rows += [[guest, None, None, why] for guest, why in self._pinned.items()]
            more = {"score": score, "table": rows, "stay": dict(self._pinned)}
            return Checked(ABOUT, comment, {"moved": changes}, more)
        return reasons.checked(ABOUT)

    def run(self) -> Result:
        """Raises NotFound where there is no host."""
        hosts, planned, why = self._plan()
        cloud = {host.name: host for host in hosts if not host.maintenance}
        self._keep(cloud, planned)
        if why:
            self.report.step("warning", why)
        for guest, words in self._pinned.items():
            self.report.step("left", f"{guest} stays: {words}", guest=guest)
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
        outcome, rest = moves.MovesOutcome(), [*planned]
        while rest:
            move = rest.pop(0)
            one = moves.GuestMove(move.guest, move.source, move.target)
            step = moves.run([one], self.migrate, self.report)
            outcome.add(step)
            cloud = self._asked_again(cloud, {move.source, move.target, *step.moved.values()})
            if step.left:
                rest, why = self._planned([*cloud.values()], outcome.moved.keys() | outcome.left)
                self._keep(cloud, rest)
                if why:
                    self.report.step("warning", why)
                continue
            now = rebalance.score([*cloud.values()], self.policy)
            if abs(now - move.after) > rebalance.LEAST_GAIN:
                why = f"the cloud's score is {now:.3f}, not {move.after:.3f} as planned; plan again"
                outcome.left.update({m.guest: why for m in rest})
                break
        return outcome

    def _plan(self) -> tuple[list[facts.Host], list[rebalance.RebalanceMove], str]:
        """(The hosts, the moves, what is to be said of room that is kept.)"""
        hosts, _ = inventory.gather(self.fleet)
        planned, why = self._planned(hosts, ())
        return hosts, planned, why

    def _planned(
        self, hosts: list[facts.Host], done: Collection[str]
    ) -> tuple[list[rebalance.RebalanceMove], str]:
        """(The moves of guests that can be moved, what is to be said of room that is kept). done:
        guests that are not moved again."""
        kept = keepers.words(self.fleet.opts)  # who keeps them would take them back
        while True:
            stay = {*kept, *self.stay, *done, *self._pinned}
            planned = rebalance.plan(hosts, self.policy, self.threshold, stay=stay)
            pinned = self._not_migratable(planned)
            if not pinned:
                return self._spared(hosts, planned)
            self._pinned |= pinned

    def _not_migratable(self, planned: list[rebalance.RebalanceMove]) -> dict[str, str]:
        """Guest to why it can go nowhere, as its host says; of those of the plan."""
        found: dict[str, str] = {}
        for host in dict.fromkeys(move.source for move in planned):
            names = [move.guest for move in planned if move.source == host]
            found |= migrating.pinned(self.fleet, host, names)
        return found

    def _spared(
        self, hosts: list[facts.Host], planned: list[rebalance.RebalanceMove]
    ) -> tuple[list[rebalance.RebalanceMove], str]:
        """(The moves before the first that would take of room that is kept, what is to be said)."""
        room = self.keeper.room(hosts) if self.keeper else None
        if room is None:
            return planned, ""
        guests = {(host.name, guest.name): guest for host in hosts for guest in host.guests}
        where: dict[str, str] = {}
        for number, move in enumerate(planned):
            guest = guests[where.setdefault(move.guest, move.source), move.guest]
            broken = room.refusal(move.target, guest)
            words = f"{move.guest} on {move.target} would break virt:ha:reserve: {broken}"
            if broken and room.warns:
                return planned, words
            if broken:
                return planned[:number], f"the plan ends here: {words}"
            room.take(move.target, guest)
        return planned, ""

    def _asked_again(self, cloud: dict[str, facts.Host], hosts: set[str]) -> dict[str, facts.Host]:
        """The cloud with these hosts as they are now."""
        found, _ = inventory.gather(self.fleet, sorted(hosts))
        kept = [host for name, host in cloud.items() if name not in hosts]
        there = account.joined([*kept, *(host for host in found if not host.maintenance)])
        return {host.name: host for host in there}
