"""Guests that leave a host by somebody else's hands, such as high availability's: waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

from saltvirt import errors, units
from saltvirt.operations import keepers, moves
from saltvirt.operations.held import Opts
from saltvirt.operations.report import Report
from saltvirt.placement.facts import Host

LOOK_S = 5
# those that are off are no reason to wait: nobody moves them
_RUN = ("running", "paused")


class KeptGuests:
    """timeout_s: so long it waits without one more of them gone. look: the hosts of those names, by
    their own word; raises ConnectionFailed where one does not answer. wait: sleeps. rests: why
    nobody moves them now, or nothing. brings: why others may still come to the host, or nothing."""

    def __init__(
        self,
        opts: Opts,
        look: Callable[[list[str]], list[Host]],
        report: Report,
        timeout_s: float,
        wait: Callable[[float], None] = time.sleep,
        rests: Callable[[], str] = str,
        brings: Callable[[], str] = str,
    ) -> None:
        self.rests, self.brings = rests, brings
        self.look, self.report, self.timeout_s, self.wait = look, report, timeout_s, wait
        self.words = keepers.words(opts)

    def leave(self, host: str, others: list[str]) -> moves.MovesOutcome:
        """Waits until none of them runs on the host, or comes to it. Who did not leave is named
        with who keeps it."""
        outcome = moves.MovesOutcome()
        if not self.words:
            return outcome
        try:
            coming = self.brings()  # it is asked first: who comes after that is seen on the host
            here = were = self._running(host)
        except errors.ConnectionFailed as exc:
            outcome.left[host] = f"what is left on it is not known: {exc.text}"
            return outcome
        waited_s = 0.0
        while (here or coming) and waited_s < self.timeout_s and not self.rests():
            if waited_s == 0 and here:
                self.report.step("waits", f"{_list(here)} left to whoever keeps them")
            self.wait(LOOK_S)
            waited_s += LOOK_S
            try:
                coming, found = self.brings(), self._running(host)
            except errors.ConnectionFailed as exc:
                outcome.left[host] = f"what is left on it is not known: {exc.text}"
                break
            if found != here:
                here, were, waited_s = found, were | found, 0.0
        why = self.rests() if here else ""
        why = why or f"it did not leave within {self.timeout_s:.0f} s"
        left = {name: self.words[name] for name in here if name in self.words}
        outcome.left |= {name: f"{why}; it is kept by {words}" for name, words in left.items()}
        if coming and not here and not self.rests():
            outcome.left.setdefault(host, f"guests may still come to it: {coming}")
        outcome.moved |= self._where(were - here, [name for name in others if name != host])
        return outcome

    def _running(self, host: str) -> frozenset[str]:
        [found] = self.look([host])
        return frozenset(
            guest.name for guest in found.guests if guest.name in self.words and guest.state in _RUN
        )

    def _where(self, gone: frozenset[str], others: list[str]) -> dict[str, str]:
        if not gone:
            return {}
        return {
            guest.name: found.name
            for found in self.look(others)
            for guest in found.guests
            if guest.name in gone and guest.state in _RUN
        }


def _list(names: frozenset[str]) -> str:
    return f"{units.counted(len(names), 'guest')} ({', '.join(sorted(names))})"
