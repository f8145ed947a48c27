"""Drain a host, and bring its guests back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from saltvirt import errors, sanitize, units
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster import failover_capacity, ha_provider, inventory
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.core.report import Report
from saltvirt.operations.journal import lock
from saltvirt.operations.journal.evacuation_record import EvacuationRecord, Observation
from saltvirt.operations.move import migrate as migrate_operation  # the name is an argument's here
from saltvirt.operations.move import moves
from saltvirt.operations.move.ha_drain import HaManagedDrain
from saltvirt.placement import account, choose, facts
from saltvirt.placement.policy import PlacementPolicy

# a host that goes on getting guests although it is marked is not looked at for ever
MAX_ROUNDS = 5
# those that somebody else moves are waited for so long, without one more gone
HA_TIMEOUT_S = 600


def plan(
    hosts: Iterable[facts.Host],
    source_name: str,
    policy: PlacementPolicy,
    plans: migrate_operation.Plans | None = None,
    reserve: ha_provider.CapacityReserve | None = None,
    pinned: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """(guest to target, guest to why it has none), biggest guest first, each simulated.

    hosts: list of facts.Host with the one to drain among them. plans: gets the whole of each. room:
    what is kept free: a host that must be drained may take of it, where no other way is. pinned:
    guest to why it can go nowhere.
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
    """Marks the host as in maintenance and moves every guest away.

    migrate: moves.Migrate. reason: what the mark says. limits: as for moves.run. The mark comes
    first, and the host is looked at again until nothing new is on it. What could not be moved is
    named with its reason; the mark stays either way. plans: gets what is planned, for ``migrate``,
    so that the hosts are asked once for all of it. keeper: who keeps room on this master. Guests
    that somebody keeps are moved by him, and waited for: timeout, seconds without one more of them
    gone. EvacuationRecord has the guests that leave before they do: ``restore`` knows them whatever
    becomes of this process. One evacuation of a host at a time; it begins no further move once
    ``restore`` waits for its end, or the host is no longer in maintenance for this reason.
    """

    def __init__(
        self,
        fleet: Fleet,
        host: str,
        policy: PlacementPolicy,
        migrate: moves.Migrate,
        report: Report,
        reason: str = "evacuated",
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
        self.reason = str(reason or "").strip() or "evacuated"
        self._current_guests: dict[str, facts.Guest] = {}
        self._drained: set[str] = set()

    def check(self) -> Checked:
        """Which guests would go where, and why others would stay."""
        reasons = Reasons()
        with reasons:
            with reasons:
                self._timeout_s()
            with reasons:
                lock.refuse_drained(self.fleet.opts, self.host)
            targets, unplaced = self._plan(self._pinned())
            reasons.raise_first()
            managed = ha_provider.managed_guests(self.fleet.opts)
            rows: list[list[Any]] = [["guest", "goes to", "reason"]]
            idle_reason = self._idle_reason()
            rows += [
                [guest, None, "; ".join(filter(None, (idle_reason, f"kept by {manager}")))]
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
        """Raises NotFound, ConnectionFailed; OperationFailed when the host cannot be marked, or is
        being evacuated or restored."""
        fleet, host = self.fleet, self.host
        fleet.hosts(host)
        timeout_s = self._timeout_s()
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
            if host not in outcome.unmoved:  # it was heard at last
                outcome.add(managed_drain.drain(host, fleet.hosts()))
            for guest in self._unfinished():
                end = f"salt-run virt.migrate_recover {guest}"
                outcome.unmoved.setdefault(guest, f"its migration from {host} is not ended: {end}")
        return outcome.result(host, f"{host} is in maintenance")

    def _unfinished(self) -> tuple[str, ...]:
        """The guests whose migration from the host is not ended, also if they live elsewhere: only
        the host can end it."""
        host_facts = migrate_operation.locations(self.fleet, [self.host]).hosts.get(self.host)
        return host_facts.unfinished if host_facts else ()

    def _drain(self, record: EvacuationRecord) -> moves.MovesOutcome:
        """Moves what is on the host, as long as guests come to it."""
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
            came = f"it came to {self.host} during the evacuation: evacuate {self.host} again"
            unplaced.update(dict.fromkeys(targets, came))
        outcome.unmoved = {**unplaced, **outcome.unmoved}
        return outcome

    def _end(self, record: EvacuationRecord, outcome: moves.MovesOutcome) -> bool:
        """Writes down what was observed; whether the evacuation was ended by somebody else."""
        host = self.host
        try:
            record.settle(outcome)
            mark = record.write()
        except (errors.VirtError, OSError) as exc:
            message = exc.text if isinstance(exc, errors.VirtError) else sanitize.one_line(exc)
            outcome.unmoved.setdefault(host, f"what was moved is not recorded: {message}")
            return False
        return lock.is_stopped(self.fleet.opts, host) or mark is None or mark.reason != self.reason

    def _is_stopped(self, record: EvacuationRecord) -> bool:
        if lock.is_stopped(self.fleet.opts, self.host):
            return True
        mark = record.mark()
        return mark is None or mark.reason != self.reason

    def _idle_reason(self) -> str:
        """Why guests that are kept stay, or nothing."""
        return self.provider.idle_reason() if self.provider else ""

    def _pending_arrivals(self) -> str:
        """Why guests that are kept may still come to the host, or nothing."""
        return self.provider.pending_arrivals(self.host) if self.provider else ""

    def _timeout_s(self) -> float:
        return units.parse_number(self.timeout, "timeout")

    def _is_empty(self) -> bool:
        """Whether no guest is left on the host that is ours to move, by its own word. Raises as
        _plan does."""
        [source] = self._query_hosts([self.host])
        return not {guest.name for guest in source.guests} - set(
            ha_provider.managed_guests(self.fleet.opts)
        )

    def _query_hosts(self, hosts: list[str]) -> list[facts.Host]:
        """Those of the hosts that answer. Raises when the one to drain does not."""
        responding, unreachable = inventory.gather(self.fleet, hosts)
        if self.host in unreachable:
            raise errors.ConnectionFailed(f"{self.host}: {unreachable[self.host]}")
        return responding

    def _pinned(self) -> dict[str, str]:
        """Guest of the host to why it can go nowhere, as the host itself says of each."""
        [source] = self._query_hosts([self.host])
        return migrate_operation.pinned(
            self.fleet, self.host, [guest.name for guest in source.guests]
        )

    def _plan(
        self, pinned: Mapping[str, str] | None = None
    ) -> tuple[dict[str, str], dict[str, str]]:
        """The plan for what is on the host and not kept by somebody, who moves it: it counts where
        there is room for it. pinned: guest to why it can go nowhere. Raises when the host does not
        answer."""
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
        """The same. Once something was moved, silence is no failure of that: it is in the
        outcome."""
        has_results = outcome.moved or outcome.unmoved
        try:
            return ({}, {}) if has_results and self._is_empty() else self._plan()
        except errors.ConnectionFailed as exc:
            if not has_results:
                raise
            return {}, {self.host: f"what is left on it is not known: {exc.text}"}


class RestoreHost:
    """Ends the maintenance and brings back what was moved away.

    An evacuation of the host that is at work begins no further move, and is waited for. Guests that
    could not be brought back stay where they are, and are named; the host keeps their names, so
    that it can be called again.
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
        """Which guests would come back."""
        reasons = Reasons()
        with reasons:
            self.fleet.hosts(self.host)
            owner = lock.host_owner(self.fleet.opts, self.host)
            if owner and not _evacuates(owner):
                raise lock.drained_error(self.host, owner)
            planned, unknown = self._plan(EvacuationRecord(self.fleet, self.host))
            rows = [["guest", "comes from"], *([m.guest, m.source] for m in planned.values())]
            rows += [[name, reason] for name, reason in unknown.items()]
            comment = f"{self.host} would take guests again, and {len(planned)} would come back"
            comment += f"; {owner}, would be stopped first" if owner else ""
            returning = {move.guest: self.host for move in planned.values()}
            return Checked(
                self.host, comment, {"moved": returning}, {"table": rows}, complete=not unknown
            )
        return reasons.checked(self.host)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput when the host is not in maintenance, OperationFailed where
        another restore is at work on it."""
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
        return outcome.result(host, f"{host} takes guests again")

    def _stop(self, owner: str) -> None:
        """An evacuation is stopped: the host takes guests at once."""
        if not _evacuates(owner):
            raise lock.drained_error(self.host, owner)
        self._ends_evacuation = True
        message = f"no further guest leaves {self.host}, those on their way are waited for"
        self.report.step("stops", f"{owner}, is stopped: {message}")
        mark = EvacuationRecord(self.fleet, self.host).mark()
        arguments = {"off": True, "guests": [*mark.guests] if mark else []}
        self.fleet.call(self.host, "virt.maintenance", arguments)

    def _plan(self, record: EvacuationRecord) -> tuple[dict[str, moves.GuestMove], dict[str, str]]:
        """(UUID to the move that would bring back what was moved away, guest to why it stays where
        it is).

        Guests that were purged since are forgotten, also those that are back already, here or on a
        host from which they had come because that was drained: but only when every host was heard.
        What the host names and this master did not move away stays.
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
                    f"{self.host} says that it was evacuated from there, "
                    "but this master did not move it"
                )
        return planned, unknown

    def _blocking_reason(self, name: str, observation: Observation) -> str | None:
        """Why a guest that was moved away is not brought back now, or None."""
        if not observation.hosts:
            return f"it is on no host that answers ({observation.silent})"
        if observation.moving:
            return f"a migration of it is not ended: salt-run virt.migrate_recover {name}"
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
        """Asks all hosts what became of those that are said to be left: the answer may have been
        lost, or somebody else has moved or removed them. A guest is back only if the host that it
        comes from was heard: of a guest on its way that one alone knows."""
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
