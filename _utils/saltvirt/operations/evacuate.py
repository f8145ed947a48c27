"""Drain a host, and bring its guests back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from saltvirt import errors, units
from saltvirt.answers.maintenance import MaintenanceMark
from saltvirt.fleet.client import Fleet
from saltvirt.operations import away, find, inventory, keepers, moves, reserved
from saltvirt.operations import migrate as migrating  # the name is an argument's here
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
) -> tuple[dict[str, str], dict[str, str]]:
    """(guest to target, guest to why it has none), biggest guest first, each simulated.

    hosts: list of facts.Host with the one to drain among them. plans: gets the whole of each. room:
    what is kept free: a host that must be drained may take of it, where no other way is.
    """
    cloud = {host.name: host for host in hosts}
    source = cloud.pop(source_name)
    targets: dict[str, str] = {}
    unplaced: dict[str, str] = {}
    for guest in sorted(source.guests, key=lambda g: (-g.memory_kib, g.name)):
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


def _marked(
    fleet: Fleet, host: str, arguments: dict[str, Any] | None = None
) -> MaintenanceMark | None:
    """The mark of the host, once it has done what the arguments say."""
    found = fleet.one(host, "virt.maintenance", arguments)
    return None if found is None else MaintenanceMark.from_answer(found, host)


class Evacuate:
    """Marks the host as in maintenance and moves every guest away.

    migrate: moves.Migrate. reason: what the mark says. limits: as for moves.run. The mark comes
    first, and the host is looked at again until nothing new is on it. What could not be moved is
    named with its reason; the mark stays either way. plans: gets what is planned, for ``migrate``,
    so that the hosts are asked once for all of it. keeper: who keeps room on this master. Guests
    that somebody keeps are moved by him, and waited for: timeout, seconds without one more of them
    gone. The mark names the guests that leave before they do, as does this master's own list:
    ``restore`` knows them whatever becomes of this process.
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
        self._here: set[str] = set()

    def check(self) -> Checked:
        """Which guests would go where, and why others would stay."""
        reasons = Reasons()
        with reasons:
            with reasons:
                self._timeout_s()
            targets, unplaced = self._plan()
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
            return Checked(self.host, comment, {"moved": targets}, more)
        return reasons.checked(self.host)

    def run(self) -> Result:
        """Raises NotFound, ConnectionFailed, OperationFailed when the host cannot be marked."""
        fleet, host = self.fleet, self.host
        fleet.hosts(host)
        timeout_s = self._timeout_s()
        mark = _marked(fleet, host)
        gone = {*mark.guests} if mark else set[str]()
        ours = away.of(fleet.opts, host)
        self._mark(gone)
        if self.keeper:
            self.keeper.look_again()
        self.report.step("maintenance", f"{host} gets no new guests: {self.reason}")
        outcome = moves.MovesOutcome()
        for _ in range(LOOKS):
            targets, unplaced = self._again(outcome)
            planned = [
                moves.GuestMove(g, host, t) for g, t in targets.items() if g not in outcome.left
            ]
            if not planned:
                break
            leaving = {move.guest for move in planned}
            away.keep(fleet.opts, host, ours | set(outcome.moved) | leaving)
            self._mark(gone | set(outcome.moved) | leaving)
            outcome.add(moves.run(planned, self.migrate, self.report, self.limits))
        else:
            targets, unplaced = self._again(outcome)
            came = f"it came to {host} during the evacuation: evacuate {host} again"
            unplaced.update(dict.fromkeys(targets, came))
        outcome.left = {**unplaced, **outcome.left}
        away.keep(fleet.opts, host, ours | set(outcome.moved))
        self._mark(gone | set(outcome.moved))
        kept = KeptGuests(
            fleet.opts, self._asked, self.report, timeout_s, self.wait, self._rests, self._brings
        )
        if host not in outcome.left:  # it was heard at last
            outcome.add(kept.leave(host, fleet.hosts()))
        return outcome.result(host, f"{host} is in maintenance")

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

    def _plan(self) -> tuple[dict[str, str], dict[str, str]]:
        """The plan for what is on the host and not kept by somebody, who moves it: it counts where
        there is room for it. Raises when the host does not answer."""
        self.fleet.hosts(self.host)
        hosts = self._asked(self.fleet.hosts())
        room = self.keeper.room(hosts) if self.keeper else None
        kept = keepers.words(self.fleet.opts)
        self._here = {guest.name for one in hosts if one.name == self.host for guest in one.guests}
        targets, unplaced = plan(hosts, self.host, self.policy, self.plans, room)
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

    def _mark(self, guests: set[str]) -> None:
        """Raises OperationFailed when the host has no such mark then."""
        mark = MaintenanceMark(self.reason, tuple(sorted(guests)))
        if _marked(self.fleet, self.host, mark.to_answer()) != mark:
            raise errors.OperationFailed(
                f"{self.host} did not record its maintenance: it may get new guests"
            )


class Restore:
    """Ends the maintenance and brings back what was moved away.

    Those that could not be brought back stay where they are, and are named; the host keeps their
    names, so that it can be called again.
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

    def check(self) -> Checked:
        """Which guests would come back."""
        reasons = Reasons()
        with reasons:
            planned, unknown = self._plan()
            rows = [["guest", "comes from"], *([m.guest, m.source] for m in planned)]
            rows += [[name, why] for name, why in unknown.items()]
            comment = f"{self.host} would take guests again, and {len(planned)} would come back"
            back = {move.guest: self.host for move in planned}
            return Checked(self.host, comment, {"moved": back}, {"table": rows})
        return reasons.checked(self.host)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput when the host is not in maintenance."""
        fleet, host = self.fleet, self.host
        planned, unknown = self._plan()
        self._open({move.guest for move in planned} | set(unknown))
        outcome = moves.run(planned, self.migrate, self.report, self.limits)
        outcome.left.update(unknown)
        self._open(outcome.left)
        away.keep(fleet.opts, host, away.of(fleet.opts, host) & set(outcome.left))
        return outcome.result(host, f"{host} takes guests again")

    def _plan(self) -> tuple[list[moves.GuestMove], dict[str, str]]:
        """(the moves that would bring back what was moved away, guest to why it stays where it is).

        Guests that were purged since are forgotten, also those that are back already: but only when
        every host was heard. What the host names and this master did not move away stays.
        """
        fleet, host = self.fleet, self.host
        fleet.hosts(host)
        mark = _marked(fleet, host)
        if mark is None:
            raise errors.InvalidInput(f"{host} is not in maintenance")
        locations = find.locations(fleet)
        planned, unknown, ours = [], {}, away.of(fleet.opts, host)
        for name in mark.guests:
            places = sorted(locations.guests.get(name, {}))
            if host in places or not (places or locations.unreachable):
                continue
            if name not in ours:
                unknown[name] = (
                    f"{host} says that it was evacuated from there, but this master did not move it"
                )
            elif places:
                planned.append(moves.GuestMove(name, places[0], host))
            else:
                unknown[name] = f"it is on no host that answers ({locations.unreachable_text()})"
        return planned, unknown

    def _open(self, away: Iterable[str]) -> None:
        """The host takes guests again; it keeps the names of those that are still away."""
        self.fleet.one(self.host, "virt.maintenance", {"off": True, "guests": sorted(away)})
