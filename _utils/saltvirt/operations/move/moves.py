"""Run many migrations, several at a time. If one fails, the others continue; the outcome lists the
unmoved guests with the reasons."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from saltvirt import errors, sanitize
from saltvirt.operations.core.operation import Result
from saltvirt.operations.core.report import Report

log = logging.getLogger(__name__)

# called with a guest and its target; returns the host of the guest afterwards
Migrate = Callable[[str, str], str]


@dataclass(frozen=True)
class GuestMove:
    """The move of one guest between two hosts."""

    guest: str
    source: str
    target: str


@dataclass
class MovesOutcome:
    """moved: guest to its current host. unmoved: guest to why it was not moved."""

    moved: dict[str, str] = field(default_factory=dict)
    unmoved: dict[str, str] = field(default_factory=dict)

    def add(self, step: MovesOutcome) -> None:
        """Add the outcome of further moves."""
        self.moved.update(step.moved)
        self.unmoved.update(step.unmoved)

    def result(self, subject: str, comment: str) -> Result:
        """Return the Result of an operation that made the moves: unmoved guests make it
        incomplete."""
        changes, details = {"moved": self.moved}, {"left": self.unmoved}
        return Result(
            subject, f"{comment}: {self.text()}", changes, details, complete=not self.unmoved
        )

    def text(self) -> str:
        """Return one line: how many guests moved, and the reason for each that did not."""
        line = f"{len(self.moved)} moved"
        if self.unmoved:
            reasons = "; ".join(
                f"{name}: {reason}" for name, reason in sorted(self.unmoved.items())
            )
            line += f", {len(self.unmoved)} left: {reasons}"
        return line


def run(
    moves: Iterable[GuestMove], migrate: Migrate, report: Report, limits: tuple[int, int] = (1, 1)
) -> MovesOutcome:
    """Make the moves, in order as far as the limits permit.

    moves: GuestMoves. migrate: callable(guest, target) that returns the guest's host afterwards and
    raises VirtError; any other exception is logged. It is called from several threads. limits: as
    returned by slots.limits; migrate waits for slots that other processes hold. Returns a
    MovesOutcome; the failure of one guest does not stop the others.
    """
    outcome, waiting = MovesOutcome(), list(moves)
    running: dict[Future[str], GuestMove] = {}
    with ThreadPoolExecutor(max_workers=limits[0]) as pool:
        while waiting or running:
            for move in [*waiting]:
                if _can_start(move, running.values(), limits):
                    waiting.remove(move)
                    running[pool.submit(migrate, move.guest, move.target)] = move
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                _record_outcome(outcome, running.pop(done).guest, done, report)
    return outcome


def _can_start(move: GuestMove, running: Iterable[GuestMove], limits: tuple[int, int]) -> bool:
    busy = [host for running_move in running for host in (running_move.source, running_move.target)]
    max_total, max_per_host = limits
    return (
        len(busy) // 2 < max_total
        and max(map(busy.count, (move.source, move.target))) < max_per_host
    )


def _record_outcome(outcome: MovesOutcome, guest: str, done: Future[str], report: Report) -> None:
    try:
        outcome.moved[guest] = done.result()
        report.step("moved", f"{guest} is on {outcome.moved[guest]}", guest=guest)
    except errors.VirtError as exc:
        outcome.unmoved[guest] = exc.text
        report.step("left", f"{guest} stays: {exc.text}", guest=guest)
    except Exception as exc:  # such as a full disk of the master: the other moves continue
        log.exception("the move of %s failed", guest)
        outcome.unmoved[guest] = sanitize.one_line(f"{type(exc).__name__}: {exc}")
        report.step("left", f"{guest} is left: {outcome.unmoved[guest]}", guest=guest)
