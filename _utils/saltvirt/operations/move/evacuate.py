"""Evacuate a host, and restore its guests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from saltvirt import errors, sanitize, units
from saltvirt.answers.host_calls import MAINTENANCE, MaintenanceRequest
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster import failover_capacity, ha_provider, inventory
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.core.report import Report
from saltvirt.operations.journal import lock
from saltvirt.operations.move import migrate as migrate_operation  # not the argument
from saltvirt.operations.move import moves
from saltvirt.operations.move.evacuation_record import EvacuationRecord, Observation
from saltvirt.operations.move.ha_drain import HaManagedDrain
from saltvirt.placement import account, choose, facts
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.spec import values

# maximum rounds if a host still gets guests although it is marked
MAX_ROUNDS = 5
# how long it waits without progress for guests that another engine moves
HA_TIMEOUT_S = 600


def plan(
    hosts: Iterable[facts.Host],
    source_name: str,
    policy: PlacementPolicy,
    plans: migrate_operation.Plans | None = None,
    reserve: ha_provider.CapacityReserve | None = None,
    pinned: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return (guest to target, guest to why it has none), the largest guest first, each placed as
    if the previous ones had moved.

    hosts: inventories, with the host to drain. plans: receives the plan of each guest. reserve: the
    failover reserve, which may be used if there is no other way. pinned: guest to why it cannot
    move.
    """
    cloud = {host.name: host for host in hosts}
    source = cloud.pop(source_name)
    targets: dict[str, str] = {}
    unplaced = dict(pinned or {})
    for guest in sorted(source.guests, key=lambda g: (-g.memory_kib, g.name)):
        if guest.name in unplaced:
            continue
        request = facts.of_guest(guest, source)
        decision = choose.choose(cloud.values(), request, policy)
        if not decision.ranked:
            unplaced[guest.name] = decision.reasons() or "there is no other host"
            continue
        decision = failover_capacity.spare_reserve(decision, reserve, guest)
        targets[guest.name] = decision.ranked[0].host
        if plans is not None:
            plans[guest.name] = migrate_operation.planned(cloud, source_name, decision, policy)
        cloud = account.after_placement(cloud, targets[guest.name], request, guest)
    return targets, unplaced


class Evacuate:
    """Marks the host as being in maintenance and moves all guests away.

    migrate: moves.Migrate. reason: stored in the mark. limits: as for moves.run. The mark comes
    first, and the host is queried until no new guest is on it. Guests that cannot move are reported
    with the reason; the mark stays in any case. plans: receives the plans for ``migrate``, so that
    one query of the hosts is sufficient. provider: manages the failover reserve. Managed guests are
    moved by their provider; timeout: how many seconds to wait without progress. EvacuationRecord
    stores each guest before it leaves, so that ``restore`` knows it even if this process dies. One
    evacuation of a host runs at a time. It starts no further move after ``restore`` has begun to
    wait for it, or if the host is no longer in maintenance for this reason.
    """

    def __init__(
        self,
        fleet: Fleet,
        host: str,
        policy: PlacementPolicy,
        migrate: moves.Migrate,
        report: Report,
        reason: object = "evacuated",
        limits: tuple[int, int] = (1, 1),
        plans: migrate_operation.Plans | None = None,
        provider: ha_provider.HaProvider | None = None,
        timeout: object = HA_TIMEOUT_S,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.plans, self.provider = plans, provider
        self.timeout, self.wait = timeout, wait
        self.fleet, self.host, self.policy = fleet, host, policy
        self.migrate, self.report, self.limits = migrate, report, limits
        self.given_reason = "evacuated" if reason in (None, "") else reason
        self.reason = sanitize.one_line(self.given_reason, None)
        self._current_guests: dict[str, facts.Guest] = {}
        self._drained: set[str] = set()

    def check(self) -> Checked:
        """Return which guests would move to which host, and why others would stay."""
        reasons = Reasons()
        with reasons:
            with reasons:
                self._timeout_s()
            with reasons:
                values.reason(self.given_reason)
            with reasons:
                lock.refuse_drained(self.fleet.opts, self.host)
            targets, unplaced = self._plan(self._pinned())
            reasons.raise_first()
            managed = ha_provider.managed_guests(self.fleet.opts)
            rows: list[list[Any]] = [["guest", "goes to", "reason"]]
            idle_reason = self._idle_reason()
            rows += [
                [guest, None, "; ".join(filter(None, (idle_reason, f"managed by {manager}")))]
                for guest, manager in managed.items()
                if guest in self._current_guests
            ]
            rows += [[guest, target, ""] for guest, target in targets.items()]
            rows += [[guest, None, reason] for guest, reason in unplaced.items()]
            comment = f"{self.host}: {len(targets)} would move, {len(unplaced)} would stay"
            details = {"table": rows, "moves": targets, "left": unplaced}
            return Checked(self.host, comment, {"moved": targets}, details, complete=not unplaced)
        return reasons.checked(self.host)

    def run(self) -> Result:
        """Evacuate the host. Raises NotFound, ConnectionFailed; OperationFailed if the host cannot
        be marked, or another operation is evacuating or restoring it."""
        fleet, host = self.fleet, self.host
        fleet.hosts(host)
        timeout_s = self._timeout_s()
        values.reason(self.given_reason)
        with lock.host(fleet.opts, host, f"virt.evacuate {host}"):
            record = EvacuationRecord(fleet, host)
            record.read(record.mark())
            record.close(self.reason)
            if self.provider:
                self.provider.refresh()
            self.report.step("maintenance", f"{host} gets no new guests: {self.reason}")
            outcome = self._drain(record)
            if self._end(record, outcome):
                return outcome.result(host, f"the evacuation of {host} was ended")
            managed_drain = HaManagedDrain(
                fleet.opts,
                self._query_hosts,
                self.report,
                timeout_s,
                self.wait,
                self._idle_reason,
                self._pending_arrivals,
            )
            if host not in outcome.unmoved:  # the host answered the last query
                outcome.add(managed_drain.drain(host, fleet.hosts()))
            for guest in self._unfinished():
                end = f"salt-run virt.migrate_recover {guest}"
                outcome.unmoved.setdefault(guest, f"its migration from {host} has not ended: {end}")
        return outcome.result(host, f"{host} is in maintenance")

    def _unfinished(self) -> tuple[str, ...]:
        """Return the guests whose migration from the host has not ended, even if they are
        elsewhere: only the host can end it."""
        host_facts = migrate_operation.locations(self.fleet, [self.host]).hosts.get(self.host)
        return host_facts.unfinished if host_facts else ()

    def _drain(self, record: EvacuationRecord) -> moves.MovesOutcome:
        """Move the guests of the host until no new ones arrive."""
        outcome = moves.MovesOutcome()
        for _ in range(MAX_ROUNDS):
            targets, unplaced = self._replan(outcome)
            planned = [
                moves.GuestMove(guest, self.host, target)
                for guest, target in targets.items()
                if guest not in outcome.unmoved
            ]
            if not planned:
                break
            if self._is_stopped(record):  # also while all hosts were asked for the first plan
                unplaced |= dict.fromkeys(targets, f"the evacuation of {self.host} was ended")
                break
            leaving = [self._current_guests[move.guest] for move in planned]
            record.leave(leaving, self.reason, self._drained)
            outcome.add(moves.run(planned, self.migrate, self.report, self.limits))
        else:
            targets, unplaced = self._replan(outcome)
            came = f"it arrived on {self.host} during the evacuation: evacuate {self.host} again"
            unplaced.update(dict.fromkeys(targets, came))
        outcome.unmoved = {**unplaced, **outcome.unmoved}
        return outcome

    def _end(self, record: EvacuationRecord, outcome: moves.MovesOutcome) -> bool:
        """Write the record from observations. Return whether another operation has ended the
        evacuation."""
        host = self.host
        try:
            record.settle(outcome)
            mark = record.write()
        except (errors.VirtError, OSError) as exc:
            message = exc.text if isinstance(exc, errors.VirtError) else sanitize.one_line(exc)
            outcome.unmoved.setdefault(host, f"the moves were not recorded: {message}")
            return False
        return lock.is_stopped(self.fleet.opts, host) or mark is None or mark.reason != self.reason

    def _is_stopped(self, record: EvacuationRecord) -> bool:
        if lock.is_stopped(self.fleet.opts, self.host):
            return True
        mark = record.mark()
        return mark is None or mark.reason != self.reason

    def _idle_reason(self) -> str:
        """Return why managed guests stay, or ""."""
        return self.provider.idle_reason() if self.provider else ""

    def _pending_arrivals(self) -> str:
        """Return why managed guests may still move to the host, or ""."""
        return self.provider.pending_arrivals(self.host) if self.provider else ""

    def _timeout_s(self) -> float:
        return units.parse_number(self.timeout, "timeout")

    def _is_empty(self) -> bool:
        """Return whether the host reports no guest that this operation has to move. Raises as _plan
        does."""
        [source] = self._query_hosts([self.host])
        return not {guest.name for guest in source.guests} - set(
            ha_provider.managed_guests(self.fleet.opts)
        )

    def _query_hosts(self, hosts: list[str]) -> list[facts.Host]:
        """Return the inventories of the hosts that answer. Raises if the host to drain does not."""
        responding, unreachable = inventory.gather(self.fleet, hosts)
        if self.host in unreachable:
            raise errors.ConnectionFailed(f"{self.host}: {unreachable[self.host]}")
        return responding

    def _pinned(self) -> dict[str, str]:
        """Return guest to why it cannot move, as reported by the host."""
        [source] = self._query_hosts([self.host])
        return migrate_operation.pinned(
            self.fleet, self.host, [guest.name for guest in source.guests]
        )

    def _plan(
        self, pinned: Mapping[str, str] | None = None
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the plan for the unmanaged guests of the host. Managed guests count where there is
        capacity for them, because their provider moves them. pinned: guest to why it cannot move.
        Raises if the host does not answer."""
        self.fleet.hosts(self.host)
        hosts = self._query_hosts(self.fleet.hosts())
        reserve = self.provider.capacity_reserve(hosts) if self.provider else None
        managed = ha_provider.managed_guests(self.fleet.opts)
        [source] = [host for host in hosts if host.name == self.host]
        self._current_guests = {guest.name: guest for guest in source.guests}
        open_hosts = {host.name for host in hosts if not host.maintenance}
        self._drained = {*self.fleet.hosts()} - open_hosts - {self.host}
        targets, unplaced = plan(hosts, self.host, self.policy, self.plans, reserve, pinned)
        if self.plans is not None:
            for name in targets:
                self.plans[name] = replace(self.plans[name], evacuated=self.reason)
        return (
            {name: target for name, target in targets.items() if name not in managed},
            {name: reason for name, reason in unplaced.items() if name not in managed},
        )

    def _replan(self, outcome: moves.MovesOutcome) -> tuple[dict[str, str], dict[str, str]]:
        """Return the plan for the remaining guests. After the first move, a host that does not
        answer is an entry in the outcome instead of an error."""
        has_results = outcome.moved or outcome.unmoved
        try:
            return ({}, {}) if has_results and self._is_empty() else self._plan()
        except errors.ConnectionFailed as exc:
            if not has_results:
                raise
            return {}, {self.host: f"its remaining guests are unknown: {exc.text}"}


class RestoreHost:
    """Ends the maintenance and returns the guests that were moved away.

    A running evacuation of the host starts no further move, and its end is awaited. Guests that
    cannot return stay where they are and are reported; the host keeps their names, so that you can
    run this again.
    """

    def __init__(
        self,
        fleet: Fleet,
        host: str,
        migrate: moves.Migrate,
        report: Report,
        limits: tuple[int, int] = (1, 1),
    ) -> None:
        self.fleet, self.host = fleet, host
        self.migrate, self.report, self.limits = migrate, report, limits
        self._ends_evacuation = False

    def check(self) -> Checked:
        """Return which guests would return."""
        reasons = Reasons()
        with reasons:
            self.fleet.hosts(self.host)
            owner = lock.host_owner(self.fleet.opts, self.host)
            if owner and not _evacuates(owner):
                raise lock.drained_error(self.host, owner)
            planned, unknown = self._plan(EvacuationRecord(self.fleet, self.host))
            sources = {move.guest: move.source for move in planned.values()}
            rows = [["guest", "comes from"]]
            rows += [[name, origin] for name, origin in sorted({**sources, **unknown}.items())]
            comment = f"{self.host} would accept guests again, and {len(planned)} would return"
            comment += f"; {owner}, would be stopped first" if owner else ""
            returning = {move.guest: self.host for move in planned.values()}
            return Checked(
                self.host, comment, {"moved": returning}, {"table": rows}, complete=not unknown
            )
        return reasons.checked(self.host)

    def run(self) -> Result:
        """Restore the host. Raises NotFound; InvalidInput if the host is not in maintenance;
        OperationFailed if another restore is running."""
        fleet, host = self.fleet, self.host
        fleet.hosts(host)
        with lock.host(fleet.opts, host, f"virt.restore {host}", self._stop):
            record = EvacuationRecord(fleet, host)
            planned, unknown = self._plan(record)
            foreign_guests = record.foreign_guests & set(unknown)
            record.open(foreign_guests)
            outcome = moves.run(planned.values(), self.migrate, self.report, self.limits)
            self._settle(record, planned, outcome)
            record.forget(uuid for uuid, move in planned.items() if move.guest in outcome.moved)
            outcome.unmoved.update(unknown)
            record.open(foreign_guests)
        return outcome.result(host, f"{host} accepts guests again")

    def _stop(self, owner: str) -> None:
        """Stop an evacuation: the host accepts guests at once."""
        if not _evacuates(owner):
            raise lock.drained_error(self.host, owner)
        self._ends_evacuation = True
        message = f"no further guest leaves {self.host}, guests on their way are awaited"
        self.report.step("stops", f"{owner}, is stopped: {message}")
        mark = EvacuationRecord(self.fleet, self.host).mark()
        guests = tuple(mark.guests) if mark else ()
        MAINTENANCE.ask(self.fleet, self.host, MaintenanceRequest(off=True, guests=guests))

    def _plan(self, record: EvacuationRecord) -> tuple[dict[str, moves.GuestMove], dict[str, str]]:
        """Return (UUID to the move that returns the guest, guest to why it stays where it is).

        Guests that were purged are forgotten, and so are guests that are already back, on this host
        or on the host from which they had been evacuated before; but only if every host has
        answered. Guests in the host's mark that this master did not move away stay.
        """
        mark = record.mark()
        if mark is None and self._ends_evacuation:  # before a guest had left
            return {}, {}
        if mark is None:
            raise errors.InvalidInput(f"{self.host} is not in maintenance")
        record.read(mark)
        guest_locations = migrate_operation.locations(self.fleet)
        planned, unknown = {}, {}
        for uuid, observation in record.observe_all(guest_locations).items():
            name = record.guests[uuid]
            if (
                observation.is_back(self.host)
                or observation.is_gone
                or record.is_at_home(uuid, observation)
            ):
                record.forget([uuid])
            elif reason := self._blocking_reason(name, observation):
                unknown[name] = reason
            else:
                [(source, current_name)] = observation.hosts.items()
                planned[uuid] = moves.GuestMove(current_name, source, self.host)
        for name in record.foreign_guests:
            places = guest_locations.guests.get(name, {})
            if self.host not in places and (places or guest_locations.unreachable):
                unknown[name] = (
                    f"{self.host} reports that it was evacuated from there, "
                    "but this master did not move it"
                )
        return planned, unknown

    def _blocking_reason(self, name: str, observation: Observation) -> str | None:
        """Return why a guest that was moved away cannot return now, or None."""
        if not observation.hosts:
            return f"it is on no host that answers ({observation.silent})"
        if observation.moving:
            return f"one of its migrations has not ended: salt-run virt.migrate_recover {name}"
        if len(observation.hosts) > 1:
            places = ", ".join(sorted(observation.hosts))
            return f"it is on more than one host ({places}): salt-run virt.repair name={name}"
        return None

    def _settle(
        self,
        record: EvacuationRecord,
        planned: Mapping[str, moves.GuestMove],
        outcome: moves.MovesOutcome,
    ) -> None:
        """Ask all hosts about guests that are reported as unmoved: an answer can be lost, or
        another operation may have moved or removed the guest. A guest is only back if the host that
        it came from has answered, because only that host knows of a running migration."""
        if not outcome.unmoved:
            return
        guest_locations = migrate_operation.locations(self.fleet)
        observed = record.observe_all(guest_locations)
        for uuid, move in planned.items():
            observation = observed[uuid]
            if move.guest not in outcome.unmoved:
                continue
            if observation.is_back(self.host) and move.source in guest_locations.hosts:
                current_name = observation.hosts[self.host]
                KeyStore(self.fleet.opts).rebind(current_name, move.source, self.host)
                outcome.moved[move.guest] = self.host
                del outcome.unmoved[move.guest]
            elif observation.is_gone:
                record.forget([uuid])
                del outcome.unmoved[move.guest]


def _evacuates(owner: str) -> bool:
    return owner.startswith("virt.evacuate ")
