"""The states of guests: the conditions of the table in ``transitions``, and what they change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from saltvirt.ha import failing, safety
from saltvirt.ha.facts import (
    ALIVE,
    IO_FAILED,
    LEAVING,
    OVER,
    RUNNING,
    Beat,
    GuestThere,
    Pledge,
)
from saltvirt.ha.registry import (
    FENCED,
    FENCING,
    MAINTENANCE,
    PLACED,
    REST,
    RETURNING,
    SUSPECTED,
    UP,
    GuestPlace,
    GuestRecord,
    HostRecord,
    Registry,
)
from saltvirt.ha.transitions import GUESTS, Row, by_state, first
from saltvirt.ha.view import IGNORED, MIGRATE, RELOCATE, STARTED, GuestWanted, MasterState, View
from saltvirt.ha.view import STOPPED as WANTED_STOPPED

if TYPE_CHECKING:
    from saltvirt.ha.place import Room

ROWS = by_state(GUESTS)


@dataclass
class GuestCase:
    """One guest, as the leader sees it now."""

    name: str
    record: GuestRecord
    wanted: GuestWanted
    registry: Registry
    state: MasterState
    view: View
    room: Room
    now_s: float

    def next(self) -> Row | None:
        """The row of the table that holds now, or None."""
        return first(ROWS, self.record.state, self)

    def changed(self, row: Row, version: int) -> GuestRecord:
        """The record after the row. version: of the registry that will have it."""
        record = replace(self.record, state=row.to, why=self.why or row.why, changed=version)
        done: GuestRecord = getattr(self, row.do)(record)
        return done

    # what is known

    why: str = ""

    def beat(self, host: str, boot: int) -> Beat | None:
        """The last beat of that boot of a host."""
        arrived = self.view.beats.get(host)
        return arrived.beat if arrived and arrived.beat.boot == boot else None

    @cached_property
    def here(self) -> Beat | None:
        """The last beat of the host that is to have it."""
        return self.beat(self.record.host, self.record.boot)

    @property
    def there(self) -> GuestThere | None:
        """What its host says of it."""
        return self.here.guests.get(self.name) if self.here else None

    @property
    def host(self) -> HostRecord:
        return self.registry.host(self.record.host)

    @cached_property
    def places(self) -> tuple[GuestPlace, ...]:
        """Where a copy may run still."""
        return tuple(place for place in self.record.places if not self._cleared(place))

    def _cleared(self, place: GuestPlace) -> bool:
        host = self.registry.host(place.host)
        pledge = self.state.kept.pledges.get(place.host, Pledge())
        if safety.is_gone(place, host) or safety.boot_proves(place, host.boot):
            return True
        if safety.is_over(place, pledge) and not pledge.freeze:
            return True
        if self._is_own(place):
            return False
        beat = self.beat(place.host, place.boot or host.boot)
        known = self.registry.version <= self.state.committed
        return known and beat is not None and safety.is_released(self.record, self.name, beat)

    def _is_own(self, place: GuestPlace) -> bool:
        """It is to run there, or to come there."""
        record = self.record
        if record.target and (place.host, place.boot) == (record.target, record.target_boot):
            return True
        return record.run and (place.host, place.boot) == (record.host, record.boot)

    @property
    def is_held(self) -> bool:
        """Its host is still one at which it may run."""
        return any(place.host == self.record.host for place in self.places)

    # conditions

    def is_there(self) -> bool:
        there = self._first()
        return there is not None and there.state in ALIVE

    def is_nowhere(self) -> bool:
        beat = self._first_beat()
        return not self.wanted.host or (beat is not None and not self.is_there())

    def is_unseen(self) -> bool:
        known = self.registry.host(self.wanted.host)
        return known.state in (SUSPECTED, FENCED) and not self.record.last

    def _first_beat(self) -> Beat | None:
        known = self.registry.host(self.wanted.host)
        if known.state not in (UP, MAINTENANCE):
            return None
        beat = self.beat(self.wanted.host, known.boot)
        # a host says of a guest whether it is there when it acts by a registry that names it
        return beat if beat and beat.applied >= self.record.changed > 0 else None

    def _first(self) -> GuestThere | None:
        beat = self._first_beat()
        return beat.guests.get(self.name) if beat else None

    def is_ignored(self) -> bool:
        return self.wanted.wanted == IGNORED

    def is_noticed(self) -> bool:
        return not self.is_ignored()

    def is_unwanted(self) -> bool:
        return self.wanted.wanted == WANTED_STOPPED

    def is_wanted(self) -> bool:
        return self.wanted.wanted == STARTED

    def was_left(self) -> bool:
        return self.places != self.record.places

    def has_arrived(self) -> bool:
        record = self.record
        beat = self.beat(record.target, record.target_boot)
        there = beat.guests.get(self.name) if beat else None
        return there is not None and there.state == RUNNING and there.epoch == record.epoch + 1

    def has_lost_its_host(self) -> bool:
        """Its place is over, or that of one that it left."""
        if self.record.target and self._is_coming():
            return False
        return self.places != self.record.places and not (self.record.run and self.is_held)

    def _is_coming(self) -> bool:
        """The target of its migration says that it is there, or on its way."""
        beat = self.beat(self.record.target, self.record.target_boot)
        there = beat.guests.get(self.name) if beat else None
        known = GuestPlace(self.record.target, self.record.target_boot) in self.places
        return known and there is not None and there.state in ALIVE

    def came_back(self) -> bool:
        there = self.there
        return bool(
            self.record.target
            and there is not None
            and there.state == RUNNING
            and there.migrated > self.record.epoch
        )

    def is_lost_between(self) -> bool:
        """It left one host and did not come to the other."""
        record, there = self.record, self.there
        if not record.target or self.here is None or (there and there.state in ALIVE):
            return False
        beat = self.beat(record.target, record.target_boot)
        known = beat is not None or self.lost_its_target()
        return known and not self._is_coming()

    def lost_its_target(self) -> bool:
        target = GuestPlace(self.record.target, self.record.target_boot)
        return bool(self.record.target) and target not in self.places

    def is_in_doubt(self) -> bool:
        """A host at which it may run is silent, and no proof is there, or to be expected."""
        for place in self.places:
            host = self.registry.host(place.host)
            if host.state in (SUSPECTED, FENCING) and host.stuck:
                self.why = f"{place.host} is {host.state}: {host.why}"
                return True
        return False

    def awaits_proof(self) -> bool:
        fencing = [self.registry.host(place.host).state == FENCING for place in self.places]
        return any(fencing) and not self.is_in_doubt()

    def _own(self) -> GuestThere | None:
        """What its host, which is heard, says of the start that it is to have."""
        there, record = self.there, self.record
        known = record.run and not record.target and self.host.state in (UP, MAINTENANCE)
        return there if known and there is not None and there.epoch == record.epoch else None

    def waits_for_storage(self) -> bool:
        there = self._own()
        self.why = failing.obstacle(there) if there else ""
        return bool(self.why)

    @property
    def _failure(self) -> str:
        """What was seen of one that failed, or nothing. It is not its fault that its host does not
        reach its storage."""
        there = self._own()
        if there is None or not self.registry.armed:
            return ""
        silent_s = self.here.storage_silent_s if self.here else None
        if there.trouble == IO_FAILED and (silent_s or 0) >= self.view.policy.suspect_s:
            return ""
        return failing.failure(there, self.wanted.restarts)

    def _tries(self, left: bool, how: str) -> bool:
        seen = self._failure
        self.why = f"it failed: {seen}: {how}" if seen and left else ""
        return bool(self.why)

    def may_restart(self) -> bool:
        there = self.there
        used = self.record.restarts + (there.resets if there else 0)
        return self._tries(used < self.wanted.restarts, "once more in place")

    def may_relocate(self) -> bool:
        left = self.record.relocates < self.wanted.relocates
        return self._tries(left, "once more elsewhere")

    def has_failed(self) -> bool:
        return self._tries(True, "as often as it may")

    def has_no_storage(self) -> bool:
        beat = self.here
        known = self.registry.armed and self.host.state in (UP, MAINTENANCE)
        if not self.record.run or beat is None or not known:
            return False
        lost = (beat.storage_silent_s or 0) >= self.view.policy.storage_lost_s
        return lost and bool(self.room.ranked(self.name, [self.record.host])[0])

    def _leaving(self) -> bool:
        beat = self.here
        return beat is not None and beat.phase in (LEAVING, OVER) and not beat.freeze

    def is_left(self) -> bool:
        """Not one on its way: it is gone here before its target says that it runs there."""
        record, beat = self.record, self.here
        if not record.run or record.target or beat is None or not self._leaving():
            return False
        if not self.registry.armed:
            return False
        there = beat.guests.get(self.name)
        moves = beat.live and there is not None and there.state == RUNNING and beat.phase != OVER
        return not moves

    def _wish(self, kind: str) -> str:
        wish = self.view.wishes.get(self.name)
        if wish is None or wish.kind != kind or wish.number <= self.record.wish:
            return ""
        return wish.host if self.room.usable(wish.host) == "" else ""

    def is_to_relocate(self) -> bool:
        return bool(self._wish(RELOCATE)) and not self.record.target

    @cached_property
    def goal(self) -> str:
        """The host that it is to migrate to, or nothing."""
        record, host = self.record, self.host
        there = self.there
        if record.target or there is None or there.state != RUNNING or not record.run:
            return ""
        if there.epoch != record.epoch or len(record.places) > 1:
            return ""
        wish = self._wish(MIGRATE)
        if wish and wish != record.host:
            return wish if wish in self.room.ranked(self.name)[0] else ""
        beat = self.here
        if host.state == MAINTENANCE or (beat is not None and self._leaving() and beat.live):
            return next(iter(self.room.ranked(self.name, [record.host])[0]), "")
        return self._better() if host.state == UP else ""

    def _better(self) -> str:
        """A host that it likes better than its own."""
        record = self.record
        if not self.wanted.failback or record.failed:
            return ""
        ranks = [rule for rule in self.view.rules if rule.hosts and self.name in rule.guests]
        own = self.room.rank(self.name, record.host)
        if record.home and record.home != record.host and self.room.usable(record.home) == "":
            at_home = self.room.rank(self.name, record.home) >= own
            if at_home and record.home in self.room.ranked(self.name)[0]:
                return record.home
        if not any(rank > own for rule in ranks for rank in rule.hosts.values()):
            return ""
        best = next(iter(self.room.ranked(self.name)[0]), "")
        return best if best and self.room.rank(self.name, best) > own else ""

    def is_to_migrate(self) -> bool:
        return bool(self.goal) and self.registry.armed

    def is_stable(self) -> bool:
        record = self.record
        if not (record.restarts or record.relocates or record.failed):
            return False
        epoch, since_s = self.state.ran_s.get(self.name, (0, self.now_s))
        return epoch == record.epoch and self.now_s - since_s >= self.view.policy.stable_s

    def runs(self) -> bool:
        there, record = self.there, self.record
        known = self.host.state in (UP, MAINTENANCE)
        return bool(
            record.run and known and there is not None and self.is_held
            and there.state == RUNNING and there.epoch == record.epoch
            and not failing.obstacle(there)
        )  # fmt: skip

    def _is_free(self) -> bool:
        return safety.may_place(replace(self.record, places=self.places)) and self.registry.armed

    @cached_property
    def choice(self) -> str:
        """The host that it gets, or nothing; ``why`` says then why not."""
        record, room = self.record, self.room
        last = self.registry.host(record.last)
        if record.last and last.state not in (UP, FENCED) and not record.failed:
            awaited = last.state in (REST, RETURNING) and not record.better
            if awaited:
                self.why = f"it waits for {record.last}: {last.why}"
                return ""
        ranked, why = room.ranked(self.name, record.failed)
        if not ranked and record.failed:
            ranked, why = room.ranked(self.name)
        if record.better in ranked:
            ranked = [record.better]
        free = [host for host in ranked if not room.is_busy(host)]
        if not free:
            self.why = f"{', '.join(ranked)}: as many start as may" if ranked else why
        return free[0] if free else ""

    def has_room(self) -> bool:
        unassigned = not self.record.host or not self.record.run
        return unassigned and self._is_free() and bool(self.choice)

    def has_no_room(self) -> bool:
        unassigned = not self.record.host or not self.record.run
        return unassigned and self._is_free() and not self.choice

    def _taker(self) -> str:
        ranked, _ = self.room.ranked(self.name, [place.host for place in self.places])
        return ranked[0] if ranked else ""

    def may_ask_for_lease(self) -> bool:
        if not self.wanted.leased or not self.is_in_doubt() or self.record.taker:
            return False
        fencing = [self.registry.host(place.host).state == FENCING for place in self.places]
        return all(fencing) and bool(self._taker())

    def has_lease(self) -> bool:
        taker = self.registry.host(self.record.taker)
        beat = self.beat(self.record.taker, taker.boot)
        return beat is not None and safety.lease_proves(self.record, self.name, beat)

    # what is changed

    def keep(self, record: GuestRecord) -> GuestRecord:
        return record

    def adopt(self, record: GuestRecord) -> GuestRecord:
        boot = self.registry.host(self.wanted.host).boot
        there = self._first()
        epoch = there.epoch if there else 0
        return replace(
            record, epoch=epoch + 1, host=self.wanted.host, boot=boot, run=True,
            places=(GuestPlace(self.wanted.host, boot),), last=self.wanted.host,
        )  # fmt: skip

    def free(self, record: GuestRecord) -> GuestRecord:
        there = self._first()
        return replace(record, last=self.wanted.host, places=(), epoch=there.epoch if there else 0)

    def assume(self, record: GuestRecord) -> GuestRecord:
        host, boot = self.wanted.host, self.registry.host(self.wanted.host).boot
        return replace(record, places=(GuestPlace(host, boot),), last=host)

    def notice(self, record: GuestRecord) -> GuestRecord:
        return record

    def halt(self, record: GuestRecord) -> GuestRecord:
        return replace(
            record, run=False, gentle=True, target="", places=self.places, epoch=_unused(record)
        )

    def resume(self, record: GuestRecord) -> GuestRecord:
        return replace(
            record, host="", run=False, restarts=0, relocates=0, failed=(), places=self.places
        )

    def leave(self, record: GuestRecord) -> GuestRecord:
        if self.has_lease() and record.taker:
            return replace(record, host="", run=False, places=(), better=record.taker, taker="")
        gone = not self.is_held
        return replace(
            record,
            places=self.places,
            host="" if gone else record.host,
            last=record.host or record.last,
            run=record.run and not gone,
            target="" if gone else record.target,
            epoch=_unused(record) if gone else record.epoch,
            taker="",
        )

    def arrive(self, record: GuestRecord) -> GuestRecord:
        wish = self.view.wishes.get(self.name)
        home = "" if record.target == record.home else record.home
        return replace(
            record, host=record.target, boot=record.target_boot, last=record.target,
            epoch=record.epoch + 1, run=True, target="", target_boot=0, places=self.places,
            home=home, wish=wish.number if wish and wish.host == record.target else record.wish,
        )  # fmt: skip

    def turn_back(self, record: GuestRecord) -> GuestRecord:
        wish = self.view.wishes.get(self.name)
        return replace(
            record, target="", target_boot=0, epoch=record.epoch + 2, places=self.places,
            wish=wish.number if wish else record.wish,
        )  # fmt: skip

    def restart(self, record: GuestRecord) -> GuestRecord:
        epoch, runs = record.epoch + 1, self.there is not None and self.there.state in ALIVE
        tries = record.restarts + 1
        return replace(record, epoch=epoch, restarts=tries, anew=epoch if runs else 0)

    def fail(self, record: GuestRecord) -> GuestRecord:
        """One that is alive still is left as it is, for a person to look at."""
        alive = self.there is not None and self.there.state in ALIVE
        return record if alive else self.halt(record)

    def relocate(self, record: GuestRecord) -> GuestRecord:
        failed = tuple(sorted({*record.failed, record.host}))
        moved = replace(record, failed=failed, relocates=record.relocates + 1, restarts=0)
        return self._let_go(moved, gentle=True)

    def _let_go(self, record: GuestRecord, gentle: bool) -> GuestRecord:
        return replace(
            record,
            host="",
            run=False,
            target="",
            gentle=gentle,
            last=record.host or record.last,
            epoch=_unused(record),
        )

    def pull(self, record: GuestRecord) -> GuestRecord:
        failed = tuple(sorted({*record.failed, record.host}))
        return self._let_go(replace(record, failed=failed), gentle=False)

    def release(self, record: GuestRecord) -> GuestRecord:
        return self._let_go(record, gentle=True)

    def relocate_to(self, record: GuestRecord) -> GuestRecord:
        wish = self.view.wishes[self.name]
        if wish.host == record.host:
            return replace(record, state=PLACED, wish=wish.number)
        return self._let_go(replace(record, better=wish.host, wish=wish.number), gentle=True)

    def send(self, record: GuestRecord) -> GuestRecord:
        boot = self.registry.host(self.goal).boot
        planned = self.host.state == MAINTENANCE or self._leaving()
        self.room.take(self.name, self.goal, starts=False)
        return replace(
            record, target=self.goal, target_boot=boot,
            places=(*record.places, GuestPlace(self.goal, boot)),
            home=(record.home or record.host) if planned else record.home,
        )  # fmt: skip

    def forgive(self, record: GuestRecord) -> GuestRecord:
        return replace(record, restarts=0, relocates=0, failed=())

    def settle(self, record: GuestRecord) -> GuestRecord:
        return replace(record, better="", gentle=False, taker="", anew=0)

    def ask(self, record: GuestRecord) -> GuestRecord:
        return replace(record, taker=self._taker())

    def place(self, record: GuestRecord) -> GuestRecord:
        boot = self.registry.host(self.choice).boot
        self.room.take(self.name, self.choice)
        return replace(
            record, host=self.choice, boot=boot, last=self.choice, run=True, gentle=False,
            epoch=record.epoch + 1, target="", taker="", places=(GuestPlace(self.choice, boot),),
        )  # fmt: skip


def _unused(record: GuestRecord) -> int:
    """The last epoch that was given to anybody: a migration has the one after the record's."""
    return record.epoch + bool(record.target)
