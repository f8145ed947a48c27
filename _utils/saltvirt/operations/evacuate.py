"""Drain a host, and bring its guests back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from saltvirt import errors, plain, units
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import inventory, keepers, lock, moves, reserved
from saltvirt.operations import migrate as migrating  # the name is an argument's here
from saltvirt.operations.evacuation_record import EvacuationRecord, Observed
from saltvirt.operations.kept import KeptGuests
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.operations.report import Report
from saltvirt.placement import account, choose, facts
from saltvirt.placement.policy import PlacementPolicy

# a host that goes on getting guests although it is marked is not looked at for ever
LOOKS = 5
# those that somebody else moves are waited for so long, without one more gone
KEPT_S = 600


def plan(
    hosts: Iterable[facts.Host],
    source_name: str,
    policy: PlacementPolicy,
    plans: migrating.Plans | None = None,
    room: keepers.Room | None = None,
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
        decision = reserved.sparing(decision, room, guest)
        targets[guest.name] = decision.ranked[0].host
        if plans is not None:
            plans[guest.name] = migrating.planned(cloud, source_name, decision, policy)
        cloud = account.taken(cloud, targets[guest.name], request, guest)
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
        plans: migrating.Plans | None = None,
        keeper: keepers.Keeper | None = None,
        timeout: object = KEPT_S,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.plans, self.keeper = plans, keeper
        self.timeout, self.wait = timeout, wait
        self.fleet, self.host, self.policy = fleet, host, policy
        self.migrate, self.report, self.limits = migrate, report, limits
        self.reason = str(reason or "").strip() or "evacuated"
        self._here: dict[str, facts.Guest] = {}
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
            reasons.hold()
            kept = keepers.words(self.fleet.opts)
            rows: list[list[Any]] = [["guest", "goes to", "reason"]]
            rests = self._rests()
            rows += [
                [guest, None, "; ".join(filter(None, (rests, f"kept by {words}")))]
                for guest, words in kept.items()
                if guest in self._here
            ]
            rows += [[guest, target, ""] for guest, target in targets.items()]
            rows += [[guest, None, why] for guest, why in unplaced.items()]
            comment = f"{self.host}: {len(targets)} would move, {len(unplaced)} would stay"
            more = {"table": rows, "moves": targets, "left": unplaced}
            return Checked(self.host, comment, {"moved": targets}, more, complete=not unplaced)
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
            if self.keeper:
                self.keeper.look_again()
            self.report.step("maintenance", f"{host} gets no new guests: {self.reason}")
            outcome = self._drain(record)
            if self._end(record, outcome):
                return outcome.result(host, f"the evacuation of {host} was ended")
            kept = KeptGuests(
                fleet.opts,
                self._asked,
                self.report,
                timeout_s,
                self.wait,
                self._rests,
                self._brings,
            )
            if host not in outcome.left:  # it was heard at last
                outcome.add(kept.leave(host, fleet.hosts()))
            for guest in self._unfinished():
                end = f"salt-run virt.migrate_recover {guest}"
                outcome.left.setdefault(guest, f"its migration from {host} is not ended: {end}")
        return outcome.result(host, f"{host} is in maintenance")

    def _unfinished(self) -> tuple[str, ...]:
        """The guests whose migration from the host is not ended, also if they live elsewhere: only
        the host can end it."""
        said = migrating.locations(self.fleet, [self.host]).hosts.get(self.host)
        return said.unfinished if said else ()

    def _drain(self, record: EvacuationRecord) -> moves.MovesOutcome:
        """Moves what is on the host, as long as guests come to it."""
        outcome = moves.MovesOutcome()
        for _ in range(LOOKS):
            targets, unplaced = self._again(outcome)
            planned = [
                moves.GuestMove(guest, self.host, target)
                for guest, target in targets.items()
                if guest not in outcome.left
            ]
            if not planned:
                break
            if self._stopped(record):  # also while all hosts were asked for the first plan
                unplaced |= dict.fromkeys(targets, f"the evacuation of {self.host} was ended")
                break
            leaving = [self._here[move.guest] for move in planned]
            record.leave(leaving, self.reason, self._drained)
            outcome.add(moves.run(planned, self.migrate, self.report, self.limits))
        else:
            targets, unplaced = self._again(outcome)
            came = f"it came to {self.host} during the evacuation: evacuate {self.host} again"
            unplaced.update(dict.fromkeys(targets, came))
        outcome.left = {**unplaced, **outcome.left}
        return outcome

    def _end(self, record: EvacuationRecord, outcome: moves.MovesOutcome) -> bool:
        """Writes down what was observed; whether the evacuation was ended by somebody else."""
        host = self.host
        try:
            record.settle(outcome)
            mark = record.write()
        except (errors.VirtError, OSError) as exc:
            words = exc.text if isinstance(exc, errors.VirtError) else plain.line(exc)
            outcome.left.setdefault(host, f"what was moved is not recorded: {words}")
            return False
        return lock.is_stopped(self.fleet.opts, host) or mark is None or mark.reason != self.reason

    def _stopped(self, record: EvacuationRecord) -> bool:
        if lock.is_stopped(self.fleet.opts, self.host):
            return True
        mark = record.mark()
        return mark is None or mark.reason != self.reason

    def _rests(self) -> str:
        """Why guests that are kept stay, or nothing."""
        return self.keeper.rests() if self.keeper else ""

    def _brings(self) -> str:
        """Why guests that are kept may still come to the host, or nothing."""
        return self.keeper.brings(self.host) if self.keeper else ""

    def _timeout_s(self) -> float:
        return units.parse_number(self.timeout, "timeout")

    def _is_empty(self) -> bool:
        """Whether no guest is left on the host that is ours to move, by its own word. Raises as
        _plan does."""
        [here] = self._asked([self.host])
        return not {guest.name for guest in here.guests} - set(keepers.words(self.fleet.opts))

    def _asked(self, hosts: list[str]) -> list[facts.Host]:
        """Those of the hosts that answer. Raises when the one to drain does not."""
        found, unreachable = inventory.gather(self.fleet, hosts)
        if self.host in unreachable:
            raise errors.ConnectionFailed(f"{self.host}: {unreachable[self.host]}")
        return found

    def _pinned(self) -> dict[str, str]:
        """Guest of the host to why it can go nowhere, as the host itself says of each."""
        [here] = self._asked([self.host])
        return migrating.pinned(self.fleet, self.host, [guest.name for guest in here.guests])

    def _plan(
        self, pinned: Mapping[str, str] | None = None
    ) -> tuple[dict[str, str], dict[str, str]]:
        """The plan for what is on the host and not kept by somebody, who moves it: it counts where
        there is room for it. pinned: guest to why it can go nowhere. Raises when the host does not
        answer."""
        self.fleet.hosts(self.host)
        hosts = self._asked(self.fleet.hosts())
        room = self.keeper.room(hosts) if self.keeper else None
        kept = keepers.words(self.fleet.opts)
        [here] = [one for one in hosts if one.name == self.host]
        self._here = {guest.name: guest for guest in here.guests}
        takes = {one.name for one in hosts if not one.maintenance}
        self._drained = {*self.fleet.hosts()} - takes - {self.host}
        targets, unplaced = plan(hosts, self.host, self.policy, self.plans, room, pinned)
        if self.plans is not None:
            for name in targets:
                self.plans[name] = replace(self.plans[name], evacuated=self.reason)
        return (
            {name: target for name, target in targets.items() if name not in kept},
            {name: why for name, why in unplaced.items() if name not in kept},
        )

    def _again(self, outcome: moves.MovesOutcome) -> tuple[dict[str, str], dict[str, str]]:
        """The same. Once something was moved, silence is no failure of that: it is in the
        outcome."""
        begun = outcome.moved or outcome.left
        try:
            return ({}, {}) if begun and self._is_empty() else self._plan()
        except errors.ConnectionFailed as exc:
            if not begun:
                raise
            return {}, {self.host: f"what is left on it is not known: {exc.text}"}


class Restore:
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
            owner = lock.at_host(self.fleet.opts, self.host)
            if owner and not _evacuates(owner):
                raise lock.drained(self.host, owner)
            planned, unknown = self._plan(EvacuationRecord(self.fleet, self.host))
            rows = [["guest", "comes from"], *([m.guest, m.source] for m in planned.values())]
            rows += [[name, why] for name, why in unknown.items()]
            comment = f"{self.host} would take guests again, and {len(planned)} would come back"
            comment += f"; {owner}, would be stopped first" if owner else ""
            back = {move.guest: self.host for move in planned.values()}
            return Checked(
                self.host, comment, {"moved": back}, {"table": rows}, complete=not unknown
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
            others = record.others & set(unknown)
            record.open(others)
            outcome = moves.run(planned.values(), self.migrate, self.report, self.limits)
            self._settle(record, planned, outcome)
            record.forget(uuid for uuid, move in planned.items() if move.guest in outcome.moved)
            outcome.left.update(unknown)
            record.open(others)
        return outcome.result(host, f"{host} takes guests again")

    def _stop(self, owner: str) -> None:
        """An evacuation is stopped: the host takes guests at once."""
        if not _evacuates(owner):
            raise lock.drained(self.host, owner)
        self._ends_evacuation = True
        words = f"no further guest leaves {self.host}, those on their way are waited for"
        self.report.step("stops", f"{owner}, is stopped: {words}")
        mark = EvacuationRecord(self.fleet, self.host).mark()
        asked = {"off": True, "guests": [*mark.guests] if mark else []}
        self.fleet.one(self.host, "virt.maintenance", asked)

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
        seen = migrating.locations(self.fleet)
        planned, unknown = {}, {}
        for uuid, found in record.observed(seen).items():
            name = record.guests[uuid]
            if found.is_back(self.host) or found.is_gone or record.is_at_home(uuid, found):
                record.forget([uuid])
            elif why := self._stays(name, found):
                unknown[name] = why
            else:
                [(source, called)] = found.hosts.items()
                planned[uuid] = moves.GuestMove(called, source, self.host)
        for name in record.others:
            places = seen.guests.get(name, {})
            if self.host not in places and (places or seen.unreachable):
                unknown[name] = (
                    f"{self.host} says that it was evacuated from there, "
                    "but this master did not move it"
                )
        return planned, unknown

    def _stays(self, name: str, found: Observed) -> str | None:
        """Why a guest that was moved away is not brought back now, or None."""
        if not found.hosts:
            return f"it is on no host that answers ({found.silent})"
        if found.moving:
            return f"a migration of it is not ended: salt-run virt.migrate_recover {name}"
        if len(found.hosts) > 1:
            places = ", ".join(sorted(found.hosts))
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
        if not outcome.left:
            return
        seen = migrating.locations(self.fleet)
        observed = record.observed(seen)
        for uuid, move in planned.items():
            found = observed[uuid]
            if move.guest not in outcome.left:
                continue
            if found.is_back(self.host) and move.source in seen.hosts:
                called = found.hosts[self.host]
                KeyStore(self.fleet.opts).moved(called, move.source, self.host)
                outcome.moved[move.guest] = self.host
                del outcome.left[move.guest]
            elif found.is_gone:
                record.forget([uuid])
                del outcome.left[move.guest]


def _evacuates(owner: str) -> bool:
    return owner.startswith("virt.evacuate ")
