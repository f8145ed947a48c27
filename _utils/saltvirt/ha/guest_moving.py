"""Guests that migrate, or are to: away from a host, to a better one, where a person wants them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from saltvirt.ha.facts import ALIVE, RUNNING
from saltvirt.ha.guest_left import GuestLeft
from saltvirt.ha.registry import MAINTENANCE, PLACED, UP, GuestPlace, GuestRecord
from saltvirt.ha.view import MIGRATE, RELOCATE


class GuestMoving(GuestLeft):
    """Conditions and changes of the table's rows."""

    def has_arrived(self) -> bool:
        record = self.record
        beat = self.beat(record.target, record.target_boot)
        there = beat.guests.get(self.name) if beat else None
        return there is not None and there.state == RUNNING and there.epoch == record.epoch + 1

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

    # what is changed

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
