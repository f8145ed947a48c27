"""Guests that migrate, or are to: away from a host, to a better one, where a person wants them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from saltvirt.ha.facts import ALIVE, RUNNING
from saltvirt.ha.guest_failing import GuestFailing
from saltvirt.ha.registry import MAINTENANCE, UP, GuestPlace, GuestRecord
from saltvirt.ha.view import MIGRATE, RELOCATE, RESTART

# after a migration that failed so long, then twice as long, up to the most of each kind
WAIT_S, WAIT_PLANNED_S, WAIT_MOST_S = 10, 30, 600
_DOUBLED = 8


class GuestMoving(GuestFailing):
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
        if self.here is None or (there and there.state in ALIVE):
            return False
        beat = self.beat(record.target, record.target_boot)
        known = beat is not None or self.lost_its_target()
        return known and not self._is_coming()

    def lost_its_target(self) -> bool:
        target = GuestPlace(self.record.target, self.record.target_boot)
        return bool(self.record.target) and target not in self.places

    def is_where_wished(self) -> bool:
        """It came there by another way."""
        record, wish = self.record, self.view.wishes.get(self.name)
        new = wish is not None and wish.number > record.wish and wish.host == record.host
        return new and not record.target

    def is_to_relocate(self) -> bool:
        return bool(self._wish(RELOCATE)) and not self.record.target and self.registry.armed

    @cached_property
    def goal(self) -> str:
        """The host that it is to migrate to, or nothing."""
        record, host = self.record, self.host
        if not self._is_well():
            return ""
        wish = self._wish(MIGRATE)
        if wish and wish in self.room.ranked(self.name)[0]:
            return wish
        leaving = self._leaving()
        if host.state == MAINTENANCE or (leaving and leaving.live):
            waited = self._has_waited(WAIT_PLANNED_S)
            return next(iter(self.room.ranked(self.name, [record.host])[0]), "") if waited else ""
        return self._better() if self.wanted.failback is True else ""

    def _is_well(self) -> bool:
        """It runs where it is to, and nothing is under way."""
        record, there = self.record, self.there
        alone = record.run and not record.target and len(record.places) <= 1
        runs = there is not None and there.state == RUNNING and there.epoch == record.epoch
        return alone and runs

    def _has_waited(self, most_s: float) -> bool:
        """Since its last migration failed: the longer, the more did one after the other."""
        record = self.record
        if not record.turned:
            return True
        ran = self.state.ran_s.get(self.name)
        wait_s = min(WAIT_S * 2 ** min(record.turned - 1, _DOUBLED), most_s)
        return ran is not None and ran[0] == record.epoch and self.now_s - ran[1] >= wait_s

    def _better(self) -> str:
        """A host that it likes better than its own, which is well."""
        record = self.record
        if self.host.state != UP or record.failed or not self._has_waited(WAIT_MOST_S):
            return ""
        home, liked = self._home(), self._liked()
        if not (home or liked):
            return ""
        shut = [one.host for one in record.refused
                if one.boot == self.registry.host(one.host).boot]  # fmt: skip
        ranked, _ = self.room.ranked(self.name, shut)
        if home in ranked:
            return home
        return ranked[0] if ranked and ranked[0] in liked else ""

    def _home(self) -> str:
        """The host that it left for what was planned, if it likes its own no better."""
        home, host, rank = self.record.home, self.record.host, self.room.rank
        takes = home != host and self.room.usable(home, self.name) == ""
        return home if takes and rank(self.name, home) >= rank(self.name, host) else ""

    def _liked(self) -> set[str]:
        """The hosts that it likes better than its own."""
        own = self.room.rank(self.name, self.record.host)
        rules = [rule for rule in self.view.rules if self.name in rule.guests]
        return {host for rule in rules for host, rank in rule.hosts.items() if rank > own}

    def is_to_migrate(self) -> bool:
        return bool(self.goal) and self.registry.armed

    @cached_property
    def back(self) -> str:
        """The better host on which it is to be started anew, once it is down here, or nothing."""
        if self.wanted.failback != RESTART or not self._is_well():
            return ""
        best = self._better()
        return "" if self.room.is_awaited(best) else best

    def is_to_restart_there(self) -> bool:
        return bool(self.back) and self.registry.armed

    def did_not_start_there(self) -> bool:
        """It went back by a stop and a start, ran well before, and does not start."""
        record = self.record
        goes = bool(record.left) and record.better == record.host
        return self._tries(goes, f"back to {record.left}")

    # what is changed

    def arrive(self, record: GuestRecord) -> GuestRecord:
        wish = self.view.wishes.get(self.name)
        home = "" if record.target == record.home else record.home
        return replace(
            record, host=record.target, boot=record.target_boot, last=record.target,
            epoch=record.epoch + 1, run=True, target="", target_boot=0, places=self.places,
            home=home, wish=wish.number if wish and wish.host == record.target else record.wish,
            turned=0,
        )  # fmt: skip

    def turn_back(self, record: GuestRecord) -> GuestRecord:
        wish = self.view.wishes.get(self.name)
        goal = MIGRATE, record.target
        return replace(
            record, target="", target_boot=0, epoch=record.epoch + 2, places=self.places,
            wish=wish.number if wish and (wish.kind, wish.host) == goal else record.wish,
            turned=record.turned + 1,
        )  # fmt: skip

    def wished(self, record: GuestRecord) -> GuestRecord:
        return replace(record, wish=self.view.wishes[self.name].number)

    def relocate_to(self, record: GuestRecord) -> GuestRecord:
        wish = self.view.wishes[self.name]
        return self._let_go(replace(record, better=wish.host, wish=wish.number), gentle=True)

    def restart_there(self, record: GuestRecord) -> GuestRecord:
        self.room.take(self.name, self.back)
        return self._let_go(replace(record, better=self.back, left=record.host), gentle=True)

    def go_again(self, record: GuestRecord) -> GuestRecord:
        """To where it ran, and not there again before that host has booted anew: each time the
        guest is down. No try is used up."""
        here = GuestPlace(record.host, record.boot)
        refused = (*(one for one in record.refused if one.host != here.host), here)
        failed = tuple(sorted({*record.failed, record.host}))
        went = replace(record, refused=refused, failed=failed, better=record.left, left="")
        return self._let_go(went, gentle=True)

    def send(self, record: GuestRecord) -> GuestRecord:
        boot = self.registry.host(self.goal).boot
        planned = self.host.state == MAINTENANCE or self._leaving() is not None
        self.room.take(self.name, self.goal, starts=False)
        return replace(
            record, target=self.goal, target_boot=boot,
            places=(*record.places, GuestPlace(self.goal, boot)),
            home=(record.home or record.host) if planned else record.home,
        )  # fmt: skip
