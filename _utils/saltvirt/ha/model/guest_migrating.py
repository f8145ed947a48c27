"""Guests that migrate or are to migrate: away from a host, to a better host, or to a host that a
person has requested."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from saltvirt.ha.model.guest_failing import GuestFailing
from saltvirt.ha.model.messages import ALIVE, RUNNING
from saltvirt.ha.model.registry import MAINTENANCE, UP, GuestLocation, HaGuestRecord
from saltvirt.ha.model.view import MIGRATE, RELOCATE, RESTART

# the first wait after a failed migration, which doubles with each further failure; the maximum
# waits for planned migrations and for those to a better host
WAIT_S, WAIT_PLANNED_S, MAX_WAIT_S = 10, 30, 600
_DOUBLED = 8


class GuestMigrating(GuestFailing):
    """Conditions and changes that the rows of the table name."""

    def has_arrived(self) -> bool:
        record = self.record
        beat = self.beat(record.target, record.target_boot)
        status = beat.guests.get(self.name) if beat else None
        return status is not None and status.state == RUNNING and status.epoch == record.epoch + 1

    def came_back(self) -> bool:
        status = self.status
        return bool(
            self.record.target
            and status is not None
            and status.state == RUNNING
            and status.migrated > self.record.epoch
        )

    def is_lost_between(self) -> bool:
        """Return whether the guest left its host and did not arrive at the target of its
        migration."""
        record, status = self.record, self.status
        if self.host_beat is None or (status and status.state in ALIVE):
            return False
        beat = self.beat(record.target, record.target_boot)
        is_certain = beat is not None or self.lost_its_target()
        return is_certain and not self._is_coming()

    def lost_its_target(self) -> bool:
        target = GuestLocation(self.record.target, self.record.target_boot)
        return bool(self.record.target) and target not in self.locations

    def is_where_requested(self) -> bool:
        """Return whether the guest already is on the requested host, which it reached in another
        way."""
        record, request = self.record, self.view.relocations.get(self.name)
        new = request is not None and request.number > record.wish and request.host == record.host
        return new and not record.target

    def is_to_relocate(self) -> bool:
        return (
            bool(self._requested_host(RELOCATE)) and not self.record.target and self.registry.armed
        )

    @cached_property
    def goal(self) -> str:
        """Return the host to which the guest is to migrate, or ""."""
        record, host = self.record, self.host
        if not self._is_well():
            return ""
        target = self._requested_host(MIGRATE)
        if target and target in self.capacity.ranked(self.name)[0]:
            return target
        leaving = self._leaving()
        if host.state == MAINTENANCE or (leaving and leaving.live):
            waited = self._has_waited(WAIT_PLANNED_S)
            return (
                next(iter(self.capacity.ranked(self.name, [record.host])[0]), "") if waited else ""
            )
        return self._better() if self.config.failback is True else ""

    def _is_well(self) -> bool:
        """Return whether the guest runs where it should, and no change of it is in progress."""
        record, status = self.record, self.status
        is_settled = record.run and not record.target and len(record.places) <= 1
        runs = status is not None and status.state == RUNNING and status.epoch == record.epoch
        return is_settled and runs

    def _has_waited(self, max_s: float) -> bool:
        """Return whether enough time has passed since the guest's last migration failed: the wait
        doubles with each failure in a row, up to max_s."""
        record = self.record
        if not record.turned:
            return True
        running_since = self.state.ran_s.get(self.name)
        wait_s = min(WAIT_S * 2 ** min(record.turned - 1, _DOUBLED), max_s)
        return (
            running_since is not None
            and running_since[0] == record.epoch
            and self.now_s - running_since[1] >= wait_s
        )

    def _better(self) -> str:
        """Return a host that the guest prefers to its present one, which has no problem; or ""."""
        record = self.record
        if self.host.state != UP or record.failed or not self._has_waited(MAX_WAIT_S):
            return ""
        home, liked = self._home(), self._liked()
        if not (home or liked):
            return ""
        excluded = [location.host for location in record.refused
                if location.boot == self.registry.host(location.host).boot]  # fmt: skip
        ranked, _ = self.capacity.ranked(self.name, excluded)
        if home in ranked:
            return home
        return ranked[0] if ranked and ranked[0] in liked else ""

    def _home(self) -> str:
        """Return the host that the guest left for a planned change, unless the guest prefers its
        present host; or ""."""
        home, host, rank = self.record.home, self.record.host, self.capacity.rank
        takes = home != host and self.capacity.usable(home, self.name) == ""
        return home if takes and rank(self.name, home) >= rank(self.name, host) else ""

    def _liked(self) -> set[str]:
        """Return the hosts that the guest prefers to its present one, according to the ranks of
        rules."""
        own_rank = self.capacity.rank(self.name, self.record.host)
        rules = [rule for rule in self.view.rules if self.name in rule.guests]
        return {host for rule in rules for host, rank in rule.hosts.items() if rank > own_rank}

    def is_to_migrate(self) -> bool:
        return bool(self.goal) and self.registry.armed

    @cached_property
    def back(self) -> str:
        """Return the better host on which the guest is to be started after it is shut down on its
        present host, or ""."""
        if self.config.failback != RESTART or not self._is_well():
            return ""
        best = self._better()
        return "" if self.capacity.is_awaited(best) else best

    def is_to_restart_there(self) -> bool:
        return bool(self.back) and self.registry.armed

    def did_not_start_there(self) -> bool:
        """Return whether the guest does not start on the better host, to which it went with a stop
        and a start, after it ran without problems on the earlier one."""
        record = self.record
        goes = bool(record.left) and record.better == record.host
        return self._tries(goes, f"back to {record.left}")

    # changes of the record

    def arrive(self, record: HaGuestRecord) -> HaGuestRecord:
        request = self.view.relocations.get(self.name)
        home = "" if record.target == record.home else record.home
        return replace(
            record, host=record.target, boot=record.target_boot, last=record.target,
            epoch=record.epoch + 1, run=True, target="", target_boot=0, places=self.locations,
            home=home,
            wish=request.number if request and request.host == record.target else record.wish,
            turned=0,
        )  # fmt: skip

    def turn_back(self, record: HaGuestRecord) -> HaGuestRecord:
        request = self.view.relocations.get(self.name)
        goal = MIGRATE, record.target
        return replace(
            record, target="", target_boot=0, epoch=record.epoch + 2, places=self.locations,
            wish=request.number if request and (request.kind,
            request.host) == goal else record.wish,
            turned=record.turned + 1,
        )  # fmt: skip

    def complete_request(self, record: HaGuestRecord) -> HaGuestRecord:
        return replace(record, wish=self.view.relocations[self.name].number)

    def relocate_to(self, record: HaGuestRecord) -> HaGuestRecord:
        request = self.view.relocations[self.name]
        return self._let_go(replace(record, better=request.host, wish=request.number), gentle=True)

    def restart_there(self, record: HaGuestRecord) -> HaGuestRecord:
        self.capacity.take(self.name, self.back)
        return self._let_go(replace(record, better=self.back, left=record.host), gentle=True)

    def go_again(self, record: HaGuestRecord) -> HaGuestRecord:
        """Return the record of a guest that goes back to the host where it ran. The guest does not
        go to the better host again before that host has booted again, because the guest is down
        during each attempt. This uses up no try."""
        location = GuestLocation(record.host, record.boot)
        refused = (
            *(earlier for earlier in record.refused if earlier.host != location.host),
            location,
        )
        failed = tuple(sorted({*record.failed, record.host}))
        changed = replace(record, refused=refused, failed=failed, better=record.left, left="")
        return self._let_go(changed, gentle=True)

    def send(self, record: HaGuestRecord) -> HaGuestRecord:
        boot = self.registry.host(self.goal).boot
        planned = self.host.state == MAINTENANCE or self._leaving() is not None
        self.capacity.take(self.name, self.goal, starts=False)
        return replace(
            record, target=self.goal, target_boot=boot,
            places=(*record.places, GuestLocation(self.goal, boot)),
            home=(record.home or record.host) if planned else record.home,
        )  # fmt: skip
