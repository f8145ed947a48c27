"""Decide what to do about a running migration: a pure function of its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saltvirt.migration.options import MigrationSettings

MIB, GIB = 1024**2, 1024**3
# factor on the minimum time at a limited bandwidth, because the guest writes meanwhile
_SLACK = 2

WAIT = "wait"
ABORT = "abort"
DOWNTIME = "downtime"
POSTCOPY = "postcopy"
PAUSE = "pause"

# passes over memory without progress before the policy acts
PASSES = 3
# a pass is progress if it begins with less than this share of the best pass
_GAIN = 0.95


@dataclass(frozen=True)
class MigrationPolicy:
    """The limits of a migration, and the action when one is exceeded.

    timeout_s: maximum for the whole migration. begin_s: maximum until the first byte is sent; the
    target allocates the guest's memory before. stall_s: maximum without progress, and for memory
    PASSES passes of it. pause_s: maximum pause of the policy ``pause``. downtime_ms: the steps by
    which ``converge`` raises the permitted downtime, one for each step_s without progress, and for
    each pass.
    """

    name: str = "converge"
    timeout_s: float = 600
    stall_s: float = 150
    step_s: float = 10
    pause_s: float = 60
    downtime_ms: tuple[int, ...] = (500, 1000, 2000, 4000)
    begin_s: float = 150


@dataclass(frozen=True)
class Action:
    kind: str = WAIT
    value: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Progress:
    """The progress of a migration, in bytes, bytes/s and seconds.

    at_s: time of the observation. memory: the disks are copied, and libvirt sends memory: a pass
    over all of it, then over the pages that the guest changed (``iteration`` counts them). lowest:
    the minimum that remained of the disks, or of the memory in this pass; best_pass_start: what the
    best pass began with; pass_start: what this pass began with. fruitless: passes since one was
    better than all before. nearer_at, stalled_s: time of the last progress, and seconds since;
    moved_at: when data was last sent. throttle: percentage by which QEMU throttles the guest
    (auto-converge); throttled_at, excused: when the throttle was last raised, and the fruitless
    passes at that time. steps: downtime steps that were taken.
    """

    total: int = 0
    processed: int = 0
    remaining: int = 0
    phase_remaining: int = 0
    speed: int = 0
    dirty_rate: int = 0
    iteration: int = 0
    at_s: float = 0
    memory: bool = False
    postcopy: bool = False
    paused: bool = False
    lowest: int | None = None
    best_pass_start: int | None = None
    pass_start: int = 0
    fruitless: int = 0
    nearer_at: float = 0
    stalled_s: float = 0
    moved_at: float = 0
    throttle: int = 0
    throttled_at: float = 0
    excused: int = 0
    steps: int = 0

    @property
    def percent(self) -> int:
        """The share of the known data that was sent: 0 to 100."""
        if not self.total:
            return 0
        return max(0, min(100, round(100 * (self.total - self.remaining) / self.total)))


def limits(
    size_bytes: int, configured: MigrationSettings, name: str = "converge"
) -> MigrationPolicy:
    """Return the MigrationPolicy for a guest with this amount of memory and disk to move."""
    per_gib = float(configured.timeout_per_gib or 300)
    slowest_s = _SLACK * size_bytes / (configured.bandwidth * MIB) if configured.bandwidth else 0
    timeout_s = float(configured.timeout or max(300, per_gib * size_bytes / GIB, slowest_s))
    stall_s = float(configured.stall_timeout or 150)
    return MigrationPolicy(
        name=name,
        timeout_s=timeout_s,
        begin_s=stall_s + size_bytes / GIB,
        stall_s=stall_s,
        step_s=float(configured.downtime_step or 10),
        pause_s=float(configured.longest_pause or 60),
    )


def advance(before: Progress, stats: Mapping[str, Any], now_s: float) -> Progress:
    """Return the Progress after one more observation.

    before: the previous Progress; stats: libvirt's job statistics by name; now_s: seconds since the
    migration began.
    """
    if not stats.get("data_total"):  # not started, just finished, or between disks and memory
        return replace(before, stalled_s=now_s - before.nearer_at)
    remaining, processed = int(stats.get("data_remaining", 0)), int(stats.get("data_processed", 0))
    iteration = int(stats.get("memory_iteration", 0))
    memory = iteration > 0 or bool(int(stats.get("memory_total", 0)))
    progress = replace(
        before,
        total=int(stats["data_total"]),
        processed=processed,
        remaining=remaining,
        phase_remaining=int(
            stats.get("memory_remaining" if memory else "disk_remaining", remaining)
        ),
        speed=_speed(before, stats, processed, now_s),
        at_s=now_s,
        dirty_rate=int(stats.get("memory_dirty_rate", 0))
        * int(stats.get("memory_page_size", 4096)),
        iteration=iteration,
        memory=memory,
        moved_at=now_s if processed > before.processed else before.moved_at,
    )
    # writes to disks are copied again: progress is a new minimum of the remaining data
    progress = _memory_pass(before, progress) if memory else _note_progress(progress)
    throttle = int(stats.get("auto_converge_throttle", 0))
    if throttle > before.throttle:
        progress = replace(
            progress, throttle=throttle, throttled_at=now_s, excused=progress.fruitless
        )
    return replace(progress, stalled_s=now_s - progress.nearer_at)


def _note_progress(progress: Progress) -> Progress:
    is_lower = progress.lowest is None or progress.phase_remaining < progress.lowest
    return _record_lowest(progress) if is_lower else progress


def _memory_pass(before: Progress, progress: Progress) -> Progress:
    """Update the progress of memory. The end of a pass is no progress by itself: a pass that begins
    with less than those before is, and so is the first pass while it runs."""
    if not before.memory:
        start = progress.phase_remaining
        return _record_lowest(
            replace(progress, best_pass_start=None, pass_start=start, fruitless=0)
        )
    if progress.iteration <= max(1, before.iteration):
        return progress if progress.fruitless else _note_progress(progress)
    if (
        progress.best_pass_start is None
        or progress.phase_remaining < progress.best_pass_start * _GAIN
    ):
        return _record_lowest(
            replace(
                progress,
                best_pass_start=progress.phase_remaining,
                pass_start=progress.phase_remaining,
                fruitless=0,
                excused=0,
            )
        )
    passes = progress.iteration - before.iteration
    return replace(
        progress,
        lowest=progress.phase_remaining,
        pass_start=progress.phase_remaining,
        fruitless=progress.fruitless + passes,
    )


def _record_lowest(progress: Progress) -> Progress:
    return replace(progress, lowest=progress.phase_remaining, nearer_at=progress.at_s)


def _speed(before: Progress, stats: Mapping[str, Any], processed: int, now_s: float) -> int:
    """Return libvirt's speed; for disks, which it does not report, the data sent since the last
    observation."""
    rate = int(stats.get("memory_bps", 0)) + int(stats.get("disk_bps", 0))
    took_s = now_s - before.at_s
    if rate or took_s <= 0:
        return rate
    return max(0, int((processed - before.processed) / took_s))


def decide(progress: Progress, elapsed_s: float, policy: MigrationPolicy) -> Action:
    """Return the Action for this moment. Post-copy cannot be ended: only wait."""
    if progress.postcopy:
        return Action()
    stalled_s = elapsed_s - progress.moved_at
    if stalled_s > (policy.stall_s if progress.processed else policy.begin_s):
        return Action(ABORT, reason=f"nothing was sent for {stalled_s:.0f} s")
    return Action() if progress.paused else _while_it_runs(progress, elapsed_s, policy)


def _while_it_runs(progress: Progress, elapsed_s: float, policy: MigrationPolicy) -> Action:
    if elapsed_s > policy.timeout_s:
        return _end(progress, policy, f"not done in {policy.timeout_s:.0f} s")
    # QEMU raises the throttle in every second pass, up to its maximum
    slowed_s = elapsed_s - progress.throttled_at
    if slowed_s > policy.stall_s and _stalled(progress, policy.stall_s, PASSES + progress.excused):
        return _end(progress, policy, f"no progress for {progress.stalled_s:.0f} s")
    if policy.name == "converge":
        return _next_step(progress, policy)
    if policy.name == "postcopy" and progress.iteration > 1:
        return Action(POSTCOPY, reason="memory was sent once and still changes")
    return Action()


def _stalled(progress: Progress, for_s: float, passes: int) -> bool:
    """Return whether there was no progress for this time and this number of passes over memory."""
    return progress.stalled_s > for_s and (not progress.memory or progress.fruitless >= passes)


def _next_step(progress: Progress, policy: MigrationPolicy) -> Action:
    """Raise the permitted downtime while no pass over memory makes progress."""
    step = progress.steps + 1
    is_stalled = progress.memory and _stalled(progress, policy.step_s * step, step)
    if is_stalled and step <= len(policy.downtime_ms):
        value = policy.downtime_ms[progress.steps]
        return Action(DOWNTIME, value, f"no progress for {progress.stalled_s:.0f} s")
    return Action()


def _end(progress: Progress, policy: MigrationPolicy, reason: str) -> Action:
    if policy.name == "postcopy" and progress.iteration >= 1:
        return Action(POSTCOPY, reason=reason)
    if policy.name != "pause" or not progress.memory:
        return Action(ABORT, reason=reason)
    speed = progress.speed or progress.processed / max(1, progress.at_s)
    rest_s = max(progress.phase_remaining, progress.pass_start) / max(1, speed)
    if progress.iteration > 1 and rest_s <= policy.pause_s:
        return Action(PAUSE, reason=reason)
    return Action(
        ABORT,
        reason=f"{reason}; the rest would take longer than the {policy.pause_s:.0f} s of a pause",
    )
