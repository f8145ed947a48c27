"""Balance the load of the hosts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from saltvirt import errors, units
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find, ha_provider, inventory
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.core.report import Report
from saltvirt.operations.move import migrate as migrate_operation  # the name is an argument's here
from saltvirt.operations.move import moves
from saltvirt.placement import account, choose, facts, rebalance
from saltvirt.placement.policy import PlacementPolicy

ABOUT = "rebalance"


class Rebalance:
    """Makes the moves that balance the load, one by one.

    After each move, its two hosts are queried. If their state differs from the plan because another
    operation has deployed or moved a guest, the remaining moves are skipped with that reason. A
    guest that its host cannot migrate, or whose move failed, stays, and the rest is planned without
    it. stay: guests that the operator excludes. threshold: nothing moves if the score is below it.
    migrate: moves.Migrate. plans: receives the plans for ``migrate``, so that one query of the
    hosts is sufficient. provider: its failover reserve ends the plan before the first move that
    would break it.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: PlacementPolicy,
        threshold: float,
        migrate: moves.Migrate,
        report: Report,
        plans: migrate_operation.Plans | None = None,
        provider: ha_provider.HaProvider | None = None,
        stay: Collection[str] = (),
    ) -> None:
        self.stay, self._pinned = frozenset(stay), dict[str, str]()
        self.plans = {} if plans is None else plans
        self.fleet, self.policy, self.threshold = fleet, policy, threshold
        self.migrate, self.report, self.provider = migrate, report, provider

    def check(self) -> Checked:
        """Return the moves, with the imbalance after each."""
        reasons = Reasons()
        with reasons:
            hosts, planned, note = self._plan()
            score = rebalance.score(hosts, self.policy)
            rows: list[list[Any]] = [["guest", "from", "to", "imbalance after", "reason"]]
            rows += [[m.guest, m.source, m.target, round(m.after, 3), None] for m in planned]
            text = f"the imbalance is {score:.3f}, guests move from {self.threshold}"
            moves_text = units.pluralize(len(planned), "move")
            comment = "; ".join(filter(None, (moves_text, text, note)))
            changes = {m.guest: m.target for m in planned}
            rows += [[guest, None, None, None, note] for guest, note in self._pinned.items()]
            details = {"score": score, "table": rows, "stay": dict(self._pinned)}
            return Checked(ABOUT, comment, {"moved": changes}, details)
        return reasons.checked(ABOUT)

    def run(self) -> Result:
        """Balance the load. Raises NotFound if there is no host."""
        hosts, planned, note = self._plan()
        cloud = {host.name: host for host in hosts if not host.maintenance}
        self._store_plans(cloud, planned)
        if note:
            self.report.step("warning", note)
        for guest, reason in self._pinned.items():
            self.report.step("left", f"{guest} stays: {reason}", guest=guest)
        comment = "; ".join(filter(None, ("rebalanced", note)))
        return self.move(cloud, planned).result(ABOUT, comment)

    def _store_plans(
        self, cloud: dict[str, facts.Host], planned: list[rebalance.RebalanceMove]
    ) -> None:
        """Store the plan of each guest, with the next best hosts in case its target refuses."""
        for move in planned:
            source = cloud[move.source]
            guest = next(guest for guest in source.guests if guest.name == move.guest)
            other_hosts = [host for name, host in cloud.items() if name != move.source]
            decision = choose.choose(other_hosts, facts.of_guest(guest, source), self.policy)
            self.plans[move.guest] = migrate_operation.planned(
                cloud, move.source, decision, self.policy, move.target
            )
            cloud = rebalance.apply_move(cloud, move)

    def move(
        self, cloud: dict[str, facts.Host], planned: list[rebalance.RebalanceMove]
    ) -> moves.MovesOutcome:
        """Make the planned moves. cloud: name to host, of the hosts that are not in maintenance."""
        outcome, rest = moves.MovesOutcome(), [*planned]
        while rest:
            move = rest.pop(0)
            guest_move = moves.GuestMove(move.guest, move.source, move.target)
            step = moves.run([guest_move], self.migrate, self.report)
            outcome.add(step)
            cloud = self._refresh_hosts(cloud, {move.source, move.target, *step.moved.values()})
            if step.unmoved:
                rest, note = self._plan_moves(
                    [*cloud.values()], outcome.moved.keys() | outcome.unmoved
                )
                self._store_plans(cloud, rest)
                if note:
                    self.report.step("warning", note)
                continue
            current_score = rebalance.score([*cloud.values()], self.policy)
            if abs(current_score - move.after) > rebalance.LEAST_GAIN:
                score = f"{current_score:.3f}, not {move.after:.3f} as planned"
                note = f"the cloud's score is {score}; plan again"
                outcome.unmoved.update({m.guest: note for m in rest})
                break
        return outcome

    def _plan(self) -> tuple[list[facts.Host], list[rebalance.RebalanceMove], str]:
        """Return (hosts, moves, note about the failover reserve)."""
        hosts, unreachable = inventory.gather(self.fleet)
        guest_names = {guest.name for host in hosts for guest in host.guests}
        last_seen = find.last_seen_lookup(self.fleet.opts, unreachable)
        unknown = sorted(name for name in self.stay - guest_names if not last_seen(name))
        if unknown:
            text = f"stay: no guest {', '.join(unknown)} on any hypervisor"
            answered = f" that answered (not: {', '.join(sorted(unreachable))})"
            raise errors.NotFound(text + (answered if unreachable else ""))
        planned, note = self._plan_moves(hosts, ())
        return hosts, planned, note

    def _plan_moves(
        self, hosts: list[facts.Host], done: Collection[str]
    ) -> tuple[list[rebalance.RebalanceMove], str]:
        """Return (moves of guests that can migrate, note about the failover reserve). done: guests
        that are not moved again."""
        managed = ha_provider.managed_guests(self.fleet.opts)  # their manager would move them back
        while True:
            stay = {*managed, *self.stay, *done, *self._pinned}
            planned = rebalance.plan(hosts, self.policy, self.threshold, pinned=stay)
            pinned = self._not_migratable(planned)
            if not pinned:
                return self._within_reserve(hosts, planned)
            self._pinned |= pinned

    def _not_migratable(self, planned: list[rebalance.RebalanceMove]) -> dict[str, str]:
        """Return guest to why its host cannot migrate it, of the planned guests."""
        pinned: dict[str, str] = {}
        for host in dict.fromkeys(move.source for move in planned):
            names = [move.guest for move in planned if move.source == host]
            pinned |= migrate_operation.pinned(self.fleet, host, names)
        return pinned

    def _within_reserve(
        self, hosts: list[facts.Host], planned: list[rebalance.RebalanceMove]
    ) -> tuple[list[rebalance.RebalanceMove], str]:
        """Return (the moves before the first that breaks the failover reserve, note)."""
        reserve = self.provider.capacity_reserve(hosts) if self.provider else None
        if reserve is None:
            return planned, ""
        guests = {(host.name, guest.name): guest for host in hosts for guest in host.guests}
        current_hosts: dict[str, str] = {}
        for number, move in enumerate(planned):
            guest = guests[current_hosts.setdefault(move.guest, move.source), move.guest]
            refusal = reserve.refusal(move.target, guest)
            message = f"{move.guest} on {move.target} would violate virt:ha:reserve: {refusal}"
            if refusal and reserve.warns:
                return planned, message
            if refusal:
                return planned[:number], f"the plan ends here: {message}"
            reserve.take(move.target, guest)
        return planned, ""

    def _refresh_hosts(
        self, cloud: dict[str, facts.Host], hosts: set[str]
    ) -> dict[str, facts.Host]:
        """Return the cloud with the current inventories of these hosts."""
        responding, _ = inventory.gather(self.fleet, sorted(hosts))
        unchanged = [host for name, host in cloud.items() if name not in hosts]
        all_hosts = account.joined(
            [*unchanged, *(host for host in responding if not host.maintenance)]
        )
        return {host.name: host for host in all_hosts}
