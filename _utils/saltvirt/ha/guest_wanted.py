"""What a person wants of a guest, and how one that is new becomes known."""

from __future__ import annotations

from dataclasses import replace

from saltvirt.ha.facts import ALIVE, Beat, GuestThere
from saltvirt.ha.guest_seen import GuestSeen, unused
from saltvirt.ha.registry import FENCED, MAINTENANCE, SUSPECTED, UP, GuestPlace, GuestRecord
from saltvirt.ha.view import IGNORED, STARTED
from saltvirt.ha.view import STOPPED as WANTED_STOPPED


class GuestAsked(GuestSeen):
    """Conditions and changes of the table's rows."""

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

    def _first_epoch(self) -> int:
        """No epoch comes again: also of one that was kept before it was ignored."""
        there = self._first()
        return max(self.record.epoch, there.epoch if there else 0)

    def is_ignored(self) -> bool:
        return self.wanted.wanted == IGNORED

    def is_noticed(self) -> bool:
        return not self.is_ignored()

    def is_noticed_anew(self) -> bool:
        """No place of it is left from before it was ignored: a person may have started it."""
        return self.is_noticed() and not self.places

    def is_unwanted(self) -> bool:
        return self.wanted.wanted == WANTED_STOPPED

    def is_wanted(self) -> bool:
        return self.wanted.wanted == STARTED

    def was_left(self) -> bool:
        return self.places != self.record.places

    # what is changed

    def look_for(self, record: GuestRecord) -> GuestRecord:
        """As one that is new, but for its epoch and the wishes that were followed."""
        return GuestRecord(
            record.state, record.why, unused(record), changed=record.changed, wish=record.wish,
            agent_silent_s=record.agent_silent_s,
        )  # fmt: skip

    def adopt(self, record: GuestRecord) -> GuestRecord:
        boot = self.registry.host(self.wanted.host).boot
        return replace(
            record, epoch=self._first_epoch() + 1, host=self.wanted.host, boot=boot, run=True,
            places=(GuestPlace(self.wanted.host, boot),), last=self.wanted.host,
        )  # fmt: skip

    def free(self, record: GuestRecord) -> GuestRecord:
        return replace(record, last=self.wanted.host, places=(), epoch=self._first_epoch())

    def assume(self, record: GuestRecord) -> GuestRecord:
        host, boot = self.wanted.host, self.registry.host(self.wanted.host).boot
        return replace(record, places=(GuestPlace(host, boot),), last=host)

    def halt(self, record: GuestRecord) -> GuestRecord:
        return replace(
            record, run=False, gentle=True, target="", places=self.places, epoch=unused(record),
            taker="", better="",
        )  # fmt: skip

    def resume(self, record: GuestRecord) -> GuestRecord:
        return replace(
            record, host="", run=False, restarts=0, relocates=0, failed=(), places=self.places,
            left="", refused=(), turned=0,
        )  # fmt: skip
