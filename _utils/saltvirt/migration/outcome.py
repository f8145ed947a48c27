"""Decide, after a failure or a kill, which host has the guest, and how to leave it on one host
only."""

from __future__ import annotations

from dataclasses import dataclass

MOVED = "moved"
UNDONE = "undone"
UNDECIDED = "undecided"
# by an operator, after its migration had begun
REMOVED = "removed"

ABSENT, OFF, RUNNING, PAUSED = "gone", "shutdown", "running", "paused"

# actions, each on the host at the end of its name
END_SOURCE = "end here"
FORGET_SOURCE = "forget here"
RESUME_SOURCE = "resume here"
END_TARGET = "end there"
PAUSE_TARGET = "pause there"
PAUSE_SOURCE = "pause here"


@dataclass(frozen=True)
class Side:
    """The guest's state on one host. is_waiting: paused by the migration itself, or not started.
    split: in post-copy, with a part of its memory on each host. restarted: its process is not the
    one whose memory was to move."""

    state: str = ABSENT
    is_waiting: bool = False
    split: bool = False
    restarted: bool = False

    @property
    def alive(self) -> bool:
        """Whether this is the user's guest: running, or paused by an operator; in post-copy, a part
        of it."""
        return self.state in (RUNNING, PAUSED) and not self.is_waiting


@dataclass(frozen=True)
class Resolution:
    outcome: str
    actions: tuple[str, ...] = ()
    message: str = ""


def decide(
    source: Side, target: Side, was_active: bool, was_running: bool, source_persistent: bool = True
) -> Resolution:
    """Return the Resolution for a guest whose migration failed or whose end was not observed.

    source, target: the Side of each host. was_active, was_running: before the migration.
    source_persistent: the source has a definition that the target has, too. A copy that may be the
    only living guest is never ended. If both live, one is paused and an operator decides: the copy
    on the source if it was started again there, because the target then has the transferred memory;
    otherwise the copy on the target.
    """
    if target.split and target.state == RUNNING and source.state == ABSENT:
        target = Side(RUNNING)  # the target has all memory: libvirt then ended the source
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
    "where it is paused now: keep one, then run virt.stop and virt.undefine for the other"
)


def _only_on_source(source: Side, was_running: bool) -> Resolution:
    if source.state == ABSENT:
        return Resolution(UNDECIDED, message="it is on neither host; its disks were not touched")
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
    """Resolve a guest that was off: it belongs to the source until the source has forgotten it."""
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
