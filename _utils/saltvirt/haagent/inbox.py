"""What the others said last, as the agent's step takes it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from saltvirt import errors, wire
from saltvirt.ha.facts import ArrivedBeat, ArrivedCall, Beat, Call
from saltvirt.hatalk import frames

_OF_MASTERS = (frames.DEFINITION, frames.FENCE)
_ASKED = (*_OF_MASTERS, frames.INCOMING, frames.INCOMING_ANSWER)


@dataclass(frozen=True)
class Asked:
    """A frame that wants an answer, or is one. at_s: when it came."""

    sender: str
    kind: str
    body: dict[str, Any]
    at_s: float


class Inbox:
    """masters: their names. clock: of this boot. wake: called when something waits that is not to
    wait for the next beat. ``on_frame`` is called by the thread that talks; what it raises ends
    that connection."""

    MOST_ASKED = 1000

    def __init__(
        self,
        masters: Collection[str],
        clock: Callable[[], float],
        wake: Callable[[], object] = lambda: None,
    ) -> None:
        self._masters, self._clock, self._wake = masters, clock, wake
        self.beats: dict[str, ArrivedBeat] = {}
        self.calls: dict[str, ArrivedCall] = {}
        self.asked: queue.Queue[Asked] = queue.Queue(self.MOST_ASKED)
        self._read_beat: dict[str, wire.Again[Beat]] = {}
        self._first_s: dict[str, float] = {}

    def on_frame(self, sender: str, kind: str, body: dict[str, Any]) -> None:
        """Keeps it. Raises BadAnswer for what is not what its kind says."""
        now_s = self._clock()
        if kind == frames.BEAT:
            beat = self._read_beat.setdefault(sender, wire.Again(Beat)).read(body, sender)
            old = self.beats.get(sender)
            if old is None or (old.beat.boot, old.beat.seq) <= (beat.boot, beat.seq):
                self.beats = {**self.beats, sender: ArrivedBeat(beat, now_s)}
        elif kind == frames.CALL:
            call = Call.from_answer(body, sender)
            for name in call.registry.guests if call.registry else ():
                self._first_s.setdefault(name, now_s)
            self.calls = {**self.calls, sender: ArrivedCall(call, now_s)}
        elif kind in _ASKED and (kind not in _OF_MASTERS or sender in self._masters):
            self._ask(Asked(sender, kind, body, now_s))

    def _ask(self, asked: Asked) -> None:
        try:
            self.asked.put_nowait(asked)
        except queue.Full as exc:
            raise errors.OperationFailed("too many questions at once") from exc
        self._wake()

    def believable(self, looked_s: float | None, known: Collection[str]) -> dict[str, ArrivedCall]:
        """The calls, without a registry that names a guest of which it is not known yet whether it
        is here: who acts by that registry says that it is not.

        looked_s: before which time nothing that libvirt has is missed. known: guests that are
        known already.
        """
        return {name: self._read(one, looked_s, known) for name, one in self.calls.items()}

    def _read(
        self, arrived: ArrivedCall, looked_s: float | None, known: Collection[str]
    ) -> ArrivedCall:
        registry = arrived.call.registry
        new = set(registry.guests) - set(known) if registry else set()
        seen = all(looked_s is not None and looked_s > self._first_s[name] for name in new)
        return arrived if seen else replace(arrived, call=replace(arrived.call, registry=None))
