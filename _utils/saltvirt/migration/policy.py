"""What to do about a running migration: a pure function of how it goes."""

from dataclasses import dataclass, replace

GIB = 1024**3

WAIT = "wait"
ABORT = "abort"
DOWNTIME = "downtime"
POSTCOPY = "postcopy"
PAUSE = "pause"


@dataclass(frozen=True)
class Policy:
    """How patient to be, and what to do when patience ends.

    timeout_s: the whole migration. stall_s: without getting nearer to the end.
    downtime_ms: the steps by which ``converge`` raises the tolerated downtime,
    one each step_s without progress.
    """

    name: str = "converge"
    timeout_s: float = 600
    stall_s: float = 150
    step_s: float = 10
    downtime_ms: tuple = (500, 1000, 2000, 4000)


@dataclass(frozen=True)
class Action:
    kind: str = WAIT
    value: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Progress:
    """Where a migration is. Bytes, bytes/s, seconds.

    at_s: when that was seen. lowest: the least that ever remained; stalled_s: since when it did
    not fall further.
    steps: how many downtime steps were taken. disks_ready: nothing of a disk remains.
    """

    total: int = 0
    processed: int = 0
    remaining: int = 0
    speed: int = 0
    dirty_rate: int = 0
    iteration: int = 0
    at_s: float = 0
    disks_ready: bool = True
    postcopy: bool = False
    paused: bool = False
    lowest: int | None = None
    lowest_at: float = 0
    stalled_s: float = 0
    steps: int = 0

    @property
    def percent(self):
        """Of what is known to have to travel: 0 to 100."""
        if not self.total:
            return 0
        return max(0, min(100, round(100 * (self.total - self.remaining) / self.total)))


def limits(size_bytes, given, name="converge"):
    """The Policy for a guest with that much memory and disk to move.

    given: dict of ``virt:migration``: ``timeout_per_gib`` (s), ``timeout`` (s, the whole),
    ``stall_timeout`` (s), ``downtime_step`` (s).
    """
    per_gib = float(given.get("timeout_per_gib") or 300)
    timeout_s = float(given.get("timeout") or max(300, per_gib * size_bytes / GIB))
    return Policy(
        name=name,
        timeout_s=timeout_s,
        stall_s=float(given.get("stall_timeout") or 150),
        step_s=float(given.get("downtime_step") or 10),
    )


def advance(before, stats, now_s):
    """The Progress after one more look.

    before: the Progress of the last look; stats: libvirt's job statistics by their names;
    now_s: seconds since the migration began.
    """
    if not stats.get("data_total"):  # not begun, just over, or between disks and memory
        return replace(before, stalled_s=now_s - before.lowest_at)
    remaining, processed = int(stats.get("data_remaining", 0)), int(stats.get("data_processed", 0))
    seen = replace(
        before,
        total=int(stats["data_total"]),
        processed=processed,
        remaining=remaining,
        speed=_speed(before, stats, processed, now_s),
        at_s=now_s,
        dirty_rate=int(stats.get("memory_dirty_rate", 0))
        * int(stats.get("memory_page_size", 4096)),
        iteration=int(stats.get("memory_iteration", 0)),
        disks_ready=int(stats.get("disk_remaining", 0)) == 0,
    )
    if before.lowest is None or remaining < before.lowest:
        return replace(seen, lowest=remaining, lowest_at=now_s, stalled_s=0)
    return replace(seen, stalled_s=now_s - before.lowest_at)


def _speed(before, stats, processed, now_s):
    """What libvirt says; of disks it says nothing, and what went since the last look is taken."""
    said = int(stats.get("memory_bps", 0)) + int(stats.get("disk_bps", 0))
    took_s = now_s - before.at_s
    if said or took_s <= 0:
        return said
    return max(0, int((processed - before.processed) / took_s))


def decide(progress, elapsed_s, policy):
    """The Action for this moment. Once post-copy began there is no way back: only wait."""
    if progress.postcopy or progress.paused:
        return Action()
    if elapsed_s > policy.timeout_s:
        return _end(progress, policy, f"not done in {policy.timeout_s:.0f} s")
    if progress.stalled_s > policy.stall_s:
        return _end(progress, policy, f"no progress for {policy.stall_s:.0f} s")
    if policy.name == "converge":
        return _next_step(progress, policy)
    if policy.name == "postcopy" and _may_post(progress) and progress.iteration > 1:
        return Action(POSTCOPY, reason="memory was sent once and changes on")
    return Action()


def _may_post(progress):
    return progress.disks_ready and progress.iteration >= 1


def _next_step(progress, policy):
    """Raise the tolerated downtime while nothing gets nearer."""
    due = progress.stalled_s > policy.step_s * (progress.steps + 1)
    if due and progress.disks_ready and progress.steps < len(policy.downtime_ms):
        value = policy.downtime_ms[progress.steps]
        return Action(DOWNTIME, value, f"no progress for {progress.stalled_s:.0f} s")
    return Action()


def _end(progress, policy, why):
    if policy.name == "pause" and progress.disks_ready:
        return Action(PAUSE, reason=why)
    if policy.name == "postcopy" and _may_post(progress):
        return Action(POSTCOPY, reason=why)
    return Action(ABORT, reason=why)
