"""Guests whose host is suspected, gone, or without its storage."""

from __future__ import annotations

from dataclasses import replace

from saltvirt.ha.model import safety
from saltvirt.ha.model.guest_context import GuestContext, last_epoch
from saltvirt.ha.model.messages import RUNNING, SHUT_DOWN
from saltvirt.ha.model.registry import FENCING, MAINTENANCE, SUSPECTED, UP, HaGuestRecord


class GuestFailover(GuestContext):
    """Conditions and changes that the rows of the table name."""

    def has_lost_its_host(self) -> bool:
        """Return whether it is proven that the guest does not run any more at one of its locations:
        that of its host, or that of a host that it left."""
        if self._is_coming():
            return False
        return self.locations != self.record.places and not (self.record.run and self.is_held)

    def is_in_doubt(self) -> bool:
        """Return whether a host where the guest may run is silent, while no proof that it is gone
        exists or is to be expected."""
        for location in self.locations:
            host = self.registry.host(location.host)
            if host.state in (SUSPECTED, FENCING) and host.stuck:
                self.reason = f"{location.host} is {host.state}: {host.why}"
                return True
        return False

    def awaits_proof(self) -> bool:
        fencing = [
            self.registry.host(location.host).state == FENCING for location in self.locations
        ]
        return any(fencing) and not self.is_in_doubt()

    def is_left(self) -> bool:
        """Return whether the guest's host wants it to leave. A guest that is migrating does not
        count: it is gone from its host before the target reports that it runs there."""
        record, beat, status = self.record, self._leaving(), self.status
        if not record.run or record.target or beat is None or not self.registry.armed:
            return False
        moves = (
            beat.live and status is not None and status.state == RUNNING and beat.phase != SHUT_DOWN
        )
        return not moves

    def has_no_storage(self) -> bool:
        is_active = self.registry.armed and self.host.state in (UP, MAINTENANCE)
        if not self.record.run or not is_active:
            return False
        lost = self._misses_storage(self.view.policy.storage_lost_s)
        return lost and bool(self.capacity.ranked(self.name, [self.record.host])[0])

    def _taker(self) -> str:
        ranked, _ = self.capacity.ranked(self.name, [location.host for location in self.locations])
        return ranked[0] if ranked else ""

    def may_ask_for_lease(self) -> bool:
        if not self.config.leased or not self.is_in_doubt() or self.record.taker:
            return False
        fencing = [
            self.registry.host(location.host).state == FENCING for location in self.locations
        ]
        return all(fencing) and bool(self._taker())

    def has_lease(self) -> bool:
        taker = self.registry.host(self.record.taker)
        beat = self.beat(self.record.taker, taker.boot)
        return beat is not None and safety.lease_proves(self.record, self.name, beat)

    # changes of the record

    def leave(self, record: HaGuestRecord) -> HaGuestRecord:
        if self.has_lease():
            return replace(record, host="", run=False, places=(), better=record.taker, taker="")
        return replace(
            record,
            places=self.locations,
            host=record.host if self.is_held else "",
            last=record.host or record.last,
            run=False,
            target="",
            epoch=last_epoch(record),
            taker="",
        )

    def _let_go(self, record: HaGuestRecord, gentle: bool) -> HaGuestRecord:
        return replace(
            record,
            host="",
            run=False,
            target="",
            gentle=gentle,
            last=record.host,
            epoch=last_epoch(record),
        )

    def pull(self, record: HaGuestRecord) -> HaGuestRecord:
        failed = tuple(sorted({*record.failed, record.host}))
        return self._let_go(replace(record, failed=failed), gentle=False)

    def release(self, record: HaGuestRecord) -> HaGuestRecord:
        return self._let_go(record, gentle=True)

    def ask(self, record: HaGuestRecord) -> HaGuestRecord:
        return replace(record, taker=self._taker())
