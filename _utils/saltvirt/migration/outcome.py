"""After a failure or a kill: whose is the guest now, and what makes it one guest again."""

from __future__ import annotations

from dataclasses import dataclass

MOVED = "moved"
UNDONE = "undone"
UNDECIDED = "undecided"
# by a person, after its migration had begun
REMOVED = "removed"

GONE, OFF, RUNNING, PAUSED = "gone", "shutdown", "running", "paused"

# what to do, each on the host that its name ends with
END_HERE = "end here"
FORGET_HERE = "forget here"
RESUME_HERE = "resume here"
END_THERE = "end there"
PAUSE_THERE = "pause there"
PAUSE_HERE = "pause here"


@dataclass(frozen=True)
class Side:
    """What one host has of the guest. waits: paused by the migration itself, or not begun.
    split: it is in post-copy: one part of its memory is here, another on the other host.
    restarted: it runs by another process than the one whose memory was to move."""

    state: str = GONE
    waits: bool = False
    split: bool = False
    restarted: bool = False

    @property
    def alive(self) -> bool:
        """It is the user's guest: running, or paused by somebody; in post-copy, a part of it."""
        return self.state in (RUNNING, PAUSED) and not self.waits


@dataclass(frozen=True)
class Verdict:
    outcome: str
    actions: tuple[str, ...] = ()
    words: str = ""


def decide(
    here: Side, there: Side, was_active: bool, was_running: bool, persistent_here: bool = True
) -> Verdict:
    """The Verdict on a guest whose migration ended badly or was never seen to end.

    here, there: Side of the source and of the target. was_active, was_running: before the
    migration. persistent_here: it has a definition on the source, which the target has, too.
    Nothing that may be the only living guest is ever ended; where both live, one is paused and a
    person decides: here if it was started again here since, for the target then has the memory
    that moved, else on the target.
    """
    if there.split and there.state == RUNNING and here.state == GONE:
        there = Side(RUNNING)  # it has all of its memory: libvirt ended the other one then
    if here.split or there.split:
        return Verdict(UNDECIDED, words=_SPLIT)
    if there.state == GONE:
        return _only_here(here, was_running)
    if there.alive:
        return _alive_there(here, persistent_here)
    if here.alive:
        return Verdict(UNDONE, (END_THERE,))
    if there.state == OFF and not was_active:
        return _cold(here)
    return _undecided(here, there)


_SPLIT = (
    "it is in post-copy: a part of its memory is on each host, and nothing was aborted; wait while "
    "libvirt moves it; if that has failed, virt.stop it on both and virt.start it on the "
    "target, whose disks are the newer ones"
)


_RESTARTED = (
    "split brain: it runs on the target, with the memory that moved, and was started again here, "
    "where it is paused now: keep one, and virt.stop and virt.undefine the other"
)


def _only_here(here: Side, was_running: bool) -> Verdict:
    if here.state == GONE:
        return Verdict(
            UNDECIDED,
            words="it is on neither host; its disks were not touched",
        )
    if here.waits and was_running:
        return Verdict(UNDONE, (RESUME_HERE,))
    return Verdict(UNDONE)


def _alive_there(here: Side, persistent_here: bool) -> Verdict:
    forget = (FORGET_HERE,) if persistent_here else ()
    if here.state == GONE:
        return Verdict(MOVED)
    if here.state == OFF:
        return Verdict(MOVED, forget)
    if here.waits:
        return Verdict(MOVED, (END_HERE, *forget))
    if here.restarted:
        return Verdict(UNDECIDED, (PAUSE_HERE,), _RESTARTED)
    return Verdict(
        UNDECIDED,
        (PAUSE_THERE,),
        "split brain: it ran on both hosts, and was paused on the target: keep one, and virt.stop "
        "and virt.undefine the other",
    )


def _cold(here: Side) -> Verdict:
    """A guest that did not run: until it is forgotten here, it is here."""
    if here.state == GONE:
        return Verdict(MOVED)
    if here.state == OFF:
        return Verdict(UNDONE, (END_THERE,))
    return _undecided(here, Side(OFF))


def _undecided(here: Side, there: Side) -> Verdict:
    if here.state == GONE and there.waits:
        return Verdict(
            UNDECIDED, words="it is no longer here and paused on the target: virt.resume it there"
        )
    return Verdict(
        UNDECIDED,
        words=f"it is {here.state} here and {there.state} on the target: decide which one to keep",
    )
