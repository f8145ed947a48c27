"""The states of guests that persons want, and how a new guest becomes known."""

from __future__ import annotations

from dataclasses import replace

from saltvirt.ha.model.guest_context import GuestContext, last_epoch
from saltvirt.ha.model.messages import ALIVE, GuestStatus, Heartbeat
from saltvirt.ha.model.registry import (
    FENCED,
    MAINTENANCE,
    SUSPECTED,
    UP,
    GuestLocation,
    HaGuestRecord,
)
from saltvirt.ha.model.view import IGNORED, STARTED
from saltvirt.ha.model.view import STOPPED as DESIRED_STOPPED


class GuestDesired(GuestContext):
    """Conditions and changes that the rows of the table name."""

    def is_there(self) -> bool:
        status = self._first()
        return status is not None and status.state in ALIVE

    def is_nowhere(self) -> bool:
        beat = self._first_beat()
        return not self.config.host or (beat is not None and not self.is_there())

    def is_unseen(self) -> bool:
        host = self.registry.host(self.config.host)
        return host.state in (SUSPECTED, FENCED) and not self.record.last

    def _first_beat(self) -> Heartbeat | None:
        host = self.registry.host(self.config.host)
        if host.state not in (UP, MAINTENANCE):
            return None
        beat = self.beat(self.config.host, host.boot)
        # a host reports a guest, or its absence, once it acts on a registry that names the guest
        return beat if beat and beat.applied >= self.record.changed > 0 else None

    def _first(self) -> GuestStatus | None:
        beat = self._first_beat()
        return beat.guests.get(self.name) if beat else None

    def _first_epoch(self) -> int:
        """Return the epoch above which the guest's epochs continue: no epoch is used again, not
        even one that was used before the guest was ignored."""
        status = self._first()
        return max(self.record.epoch, status.epoch if status else 0)

    def is_ignored(self) -> bool:
        return self.config.wanted == IGNORED

    def is_noticed(self) -> bool:
        return not self.is_ignored()

    def is_noticed_anew(self) -> bool:
        """Return whether the guest is no longer ignored and no location is left from before it was
        ignored. A person may have started the guest meanwhile."""
        return self.is_noticed() and not self.locations

    def is_to_stop(self) -> bool:
        return self.config.wanted == DESIRED_STOPPED

    def is_to_start(self) -> bool:
        return self.config.wanted == STARTED

    def was_left(self) -> bool:
        return self.locations != self.record.places

    # changes of the record

    def rediscover(self, record: HaGuestRecord) -> HaGuestRecord:
        """Return a record as for a new guest, but with the guest's epoch and the number of its last
        fulfilled request."""
        return HaGuestRecord(
            record.state, record.why, last_epoch(record), changed=record.changed, wish=record.wish,
            agent_silent_s=record.agent_silent_s,
        )  # fmt: skip

    def adopt(self, record: HaGuestRecord) -> HaGuestRecord:
        boot = self.registry.host(self.config.host).boot
        return replace(
            record, epoch=self._first_epoch() + 1, host=self.config.host, boot=boot, run=True,
            places=(GuestLocation(self.config.host, boot),), last=self.config.host,
        )  # fmt: skip

    def free(self, record: HaGuestRecord) -> HaGuestRecord:
        return replace(record, last=self.config.host, places=(), epoch=self._first_epoch())

    def assume(self, record: HaGuestRecord) -> HaGuestRecord:
        host, boot = self.config.host, self.registry.host(self.config.host).boot
        return replace(record, places=(GuestLocation(host, boot),), last=host)

    def halt(self, record: HaGuestRecord) -> HaGuestRecord:
        return replace(
            record, run=False, gentle=True, target="", places=self.locations,
            epoch=last_epoch(record),
            taker="", better="",
        )  # fmt: skip

    def resume(self, record: HaGuestRecord) -> HaGuestRecord:
        return replace(
            record, host="", run=False, restarts=0, relocates=0, failed=(), places=self.locations,
            left="", refused=(), turned=0,
        )  # fmt: skip
