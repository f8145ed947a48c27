"""The states of hosts: the conditions of the table in ``transitions``, and what they change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from saltvirt.ha import facts, pledges, safety
from saltvirt.ha.facts import ArrivedBeat, Beat, Pledge
from saltvirt.ha.registry import FENCING, IGNORED, SUSPECTED, HostRecord, Registry
from saltvirt.ha.transitions import HOSTS, Row, by_state, first
from saltvirt.ha.view import MasterState, View

ROWS = by_state(HOSTS)


@dataclass
class HostCase:
    """One host, as the leader sees it now."""

    name: str
    record: HostRecord
    registry: Registry
    state: MasterState
    view: View
    now_s: float

    def next(self) -> Row | None:
        """The row of the table that holds now, or None."""
        return first(ROWS, self.record.state, self)

    def changed(self, row: Row, version: int) -> HostRecord:
        """The record after the row. version: of the registry that will have it."""
        record = replace(self.record, state=row.to, why=row.why, stuck=False)
        done: HostRecord = getattr(self, row.do)(record, version)
        return done

    # what is known

    @cached_property
    def fresh(self) -> Beat | None:
        """The last beat, if it came not long ago."""
        arrived = self.view.beats.get(self.name)
        return arrived.beat if arrived and self._is_of_late(arrived) else None

    def _is_of_late(self, arrived: ArrivedBeat) -> bool:
        return self.now_s - arrived.at_s < self.view.policy.suspect_s

    @cached_property
    def pledge(self) -> Pledge:
        """What it has last said of itself, as far as that may be believed."""
        return pledges.of(self.name, self.state, self.view)

    @property
    def question(self) -> str:
        """By which the others were asked to give it up; a fence's attempts begin with it."""
        return f"{self.registry.term}.{self.record.ballot}"

    def _not_hearing(self) -> list[str]:
        """The other hosts that do not hear it, by what they themselves say."""
        found = []
        for peer, arrived in self.view.beats.items():
            silent_s = arrived.beat.silent_s.get(self.name)
            if peer != self.name and self._is_of_late(arrived) and silent_s is not None:
                found += [peer] if safety.does_not_hear(silent_s, self.view.policy) else []
        return found

    def _is_enough(self, peers: list[str]) -> bool:
        return safety.is_enough(peers, self.registry.members, self.view.alone)

    # conditions

    def is_heard(self) -> bool:
        beat = self.fresh
        return beat is not None and beat.boot >= self.record.gone and not self.rests()

    def has_booted(self) -> bool:
        known = max(self.record.boot + 1, self.record.gone)
        return self.fresh is not None and self.fresh.boot >= known

    def is_silent(self) -> bool:
        """Nothing came for so long, since the lead was taken."""
        arrived = self.view.beats.get(self.name)
        led_s = self.state.leading_s or self.now_s
        beat_s = arrived.at_s if arrived else led_s
        heard_s = max(led_s, beat_s, self.view.answered_s.get(self.name, led_s))
        return self.now_s - heard_s >= self.view.policy.suspect_s

    def rests(self) -> bool:
        return self.pledge.boot == self.record.boot > 0 and safety.is_at_rest(self.pledge)

    def works(self) -> bool:
        return self.is_heard()

    def is_marked(self) -> bool:
        return self.name in self.view.maintenance

    def is_unmarked(self) -> bool:
        return not self.is_marked()

    def is_confirmed(self) -> bool:
        said = self.view.confirmed.get(self.name)
        return said is not None and said >= self.record.boot and self.is_silent()

    def is_to_be_fenced(self) -> bool:
        return not self.stays()

    def stays(self) -> str:
        """Why a silent host is left alone, or nothing."""
        policy = self.view.policy
        if not self._is_occupied():
            return "no guest of high availability runs there"
        if not self.registry.armed:
            return "high availability is disarmed"
        if not self._is_enough(self._not_hearing()):
            return "no majority of the hosts says that it is gone"
        if not safety.fences_left(self.name, self.state.fenced_s, policy):
            return f"{policy.max_fences} others were fenced in {policy.fence_window_s:.0f} s"
        return ""

    def _is_occupied(self) -> bool:
        """A guest that is not ignored may run there."""
        return any(
            place.host == self.name
            for one in self.registry.guests.values()
            if one.state != IGNORED
            for place in one.places
        )

    def is_off(self) -> bool:
        seen = self.view.fences.get(self.name)
        return seen is not None and safety.fence_proves(seen.outcome, seen.attempt, self.question)

    def watchdog_fired(self) -> bool:
        since = self.state.promised_s.get(self.name)
        if since is None or since[0] != self.record.ballot:
            return False
        boot, policy = self.record.boot, self.view.policy
        return self.is_on_same_terms() and safety.watchdog_proves(
            since[1], self.now_s, self.pledge, boot, policy
        )

    def is_on_same_terms(self) -> bool:
        """It has announced the times and the program that this master goes by."""
        return safety.is_on_same_terms(self.pledge, self.view.terms)

    def is_heard_by_others(self) -> bool:
        return not self._is_enough(self._not_hearing())

    def is_disarmed(self) -> bool:
        return not self.registry.armed

    def is_clean(self) -> bool:
        """It acts by a registry of after its return: so it has learned of each guest that was
        elsewhere meanwhile, and starts none by what libvirt there still has of it."""
        beat = self.fresh
        return (
            beat is not None
            and beat.boot == self.record.boot
            and beat.applied >= self.record.ballot
            and self.is_heard()
            and not self._strangers(beat)
        )

    def _strangers(self, beat: Beat) -> list[str]:
        """Guests that are defined there and live elsewhere. One that is ignored is where a person
        wants it, and stays there."""
        guests = self.registry.guests
        return [
            name
            for name in beat.guests
            if name in guests
            and guests[name].state != IGNORED
            and guests[name].host not in ("", self.name)
            and guests[name].target != self.name
        ]

    def has_promises(self) -> bool:
        """A majority has promised not to acknowledge it any more."""
        promised = []
        for peer, arrived in self.view.beats.items():
            one = arrived.beat.promises.get(self.name)
            if (
                one is not None
                and peer != self.name
                and (one.term, one.ballot) == (self.registry.term, self.record.ballot)
            ):
                promised.append(peer)
        return self._is_enough(promised)

    # what is changed

    def keep(self, record: HostRecord, _version: int) -> HostRecord:
        return record

    def know(self, record: HostRecord, version: int) -> HostRecord:
        return replace(record, boot=self.view.beats[self.name].beat.boot, ballot=version)

    def call(self, record: HostRecord, version: int) -> HostRecord:
        return replace(record, ballot=version)

    def release(self, record: HostRecord, _version: int) -> HostRecord:
        return replace(record, ballot=0)

    def give_up(self, record: HostRecord, _version: int) -> HostRecord:
        return replace(record, gone=max(record.boot + 1, record.gone), ballot=0)


def stuck_why(case: HostCase) -> str:
    """Why nothing is done to a silent host, or no proof is to be expected; or nothing."""
    if case.record.state == SUSPECTED:
        return case.stays()
    return no_proof(case) if case.record.state == FENCING else ""


def no_proof(case: HostCase) -> str:
    """Why no proof is to be expected of a host that a majority has given up, or nothing."""
    pledge = case.pledge
    armed = pledge.armed and pledge.boot == case.record.boot
    if not case.has_promises() or (armed and case.is_on_same_terms()):
        return ""
    why = "it had no watchdog that was armed"
    if armed:
        why = f"its watchdog proves nothing: its agent has {pledge.terms.differs(case.view.terms)}"
    seen = case.view.fences.get(case.name)
    if not case.view.fence_levels.get(case.name):
        return f"it has no fence, and {why.removeprefix('it ')}"
    if seen is not None and facts.question(seen.attempt) == case.question:
        return f"its fence says {seen.outcome}, and {why}"
    return ""
