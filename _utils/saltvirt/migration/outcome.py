"""After a failure or a kill: whose is the guest now, and what makes it one guest again."""

from __future__ import annotations

from dataclasses import dataclass

MOVED = "moved"
UNDONE = "undone"
UNDECIDED = "undecided"
# by a person, after its migration had begun
REMOVED = "removed"

ABSENT, OFF, RUNNING, PAUSED = "gone", "shutdown", "running", "paused"

# what to do, each on the host that its name ends with
END_SOURCE = "end here"
FORGET_SOURCE = "forget here"
RESUME_SOURCE = "resume here"
END_TARGET = "end there"
PAUSE_TARGET = "pause there"
PAUSE_SOURCE = "pause here"


@dataclass(frozen=True)
class Side:
    """What one host has of the guest. waits: paused by the migration itself, or not begun.
    split: it is in post-copy: one part of its memory is here, another on the other host.
    restarted: it runs by another process than the one whose memory was to move."""

    state: str = ABSENT
    is_waiting: bool = False
    split: bool = False
    restarted: bool = False

    @property
    def alive(self) -> bool:
        """It is the user's guest: running, or paused by somebody; in post-copy, a part of it."""
        return self.state in (RUNNING, PAUSED) and not self.is_waiting


@dataclass(frozen=True)
class Resolution:
    outcome: str
    actions: tuple[str, ...] = ()
    message: str = ""


def decide(
    source: Side, target: Side, was_active: bool, was_running: bool, source_persistent: bool = True
) -> Resolution:
    """The Verdict on a guest whose migration ended badly or was never seen to end.

    here, there: Side of the source and of the target. was_active, was_running: before the
    migration. source_persistent: it has a definition on the source, which the target has, too.
    Nothing that may be the only living guest is ever ended; where both live, one is paused and a
    person decides: here if it was started again here since, for the target then has the memory
    that moved, else on the target.
    """
    if target.split and target.state == RUNNING and source.state == ABSENT:
        target = Side(RUNNING)  # it has all of its memory: libvirt ended the other one then
    if source.split or target.split:
        return Resolution(UNDECIDED, message=_SPLIT)
    if target.state == ABSENT:
        return _only_on_source(source, was_running)
    if target.alive:
        return _alive_on_target(source, source_persistent)
    if source.alive:
        return Resolution(UNDONE, (END_TARGET,))
    if target.state == OFF and not was_active:
        return _cold(source)
    return _undecided(source, target)


_SPLIT = (
    "it is in post-copy: a part of its memory is on each host, and nothing was aborted; wait while "
    "libvirt moves it; if that has failed, virt.stop it on both and virt.start it on the "
    "target, whose disks are the newer ones"
)


_RESTARTED = (
    "split brain: it runs on the target, with the memory that moved, and was started again here, "
    "where it is paused now: keep one, and virt.stop and virt.undefine the other"
)


def _only_on_source(source: Side, was_running: bool) -> Resolution:
    if source.state == ABSENT:
        return Resolution(
            UNDECIDED,
            message="it is on neither host; its disks were not touched",
        )
    if source.is_waiting and was_running:
        return Resolution(UNDONE, (RESUME_SOURCE,))
    return Resolution(UNDONE)


def _alive_on_target(source: Side, source_persistent: bool) -> Resolution:
    forget = (FORGET_SOURCE,) if source_persistent else ()
    if source.state == ABSENT:
        return Resolution(MOVED)
    if source.state == OFF:
        return Resolution(MOVED, forget)
    if source.is_waiting:
        return Resolution(MOVED, (END_SOURCE, *forget))
    if source.restarted:
        return Resolution(UNDECIDED, (PAUSE_SOURCE,), _RESTARTED)
    return Resolution(
        UNDECIDED,
        (PAUSE_TARGET,),
        "split brain: it ran on both hosts, and was paused on the target: keep one, and virt.stop "
        "and virt.undefine the other",
    )


def _cold(source: Side) -> Resolution:
    """A guest that did not run: until it is forgotten here, it is here."""
    if source.state == ABSENT:
        return Resolution(MOVED)
    if source.state == OFF:
        return Resolution(UNDONE, (END_TARGET,))
    return _undecided(source, Side(OFF))


def _undecided(source: Side, target: Side) -> Resolution:
    if source.state == ABSENT and target.is_waiting:
        return Resolution(
            UNDECIDED, message="it is no longer here and paused on the target: virt.resume it there"
        )
    return Resolution(
        UNDECIDED,
        message=(
            f"it is {source.state} here and {target.state} on the target: decide which one to keep"
        ),
    )
