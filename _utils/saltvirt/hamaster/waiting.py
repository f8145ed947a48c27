"""Until hosts go by what a person wants: agents act by what a majority keeps, whatever a file on
the master says."""

from __future__ import annotations

from collections.abc import Callable

from saltvirt.ha.registry import IGNORED, NEW
from saltvirt.hamaster import seen
from saltvirt.operations import held

# so long the engine may take: to decide, to have it kept by a majority, and to show that
WAIT_S = 30
_LOOK_S = 0.5


def until_let_go(opts: held.Opts, name: str, wait: Callable[[float], None]) -> str:
    """Waits until the agents leave the guest alone. Returns why they do not, or nothing. wait:
    sleeps. Raises OperationFailed for a damaged file."""
    engine = seen.look(opts)
    for _ in range(int(WAIT_S / _LOOK_S)):
        if engine.why or not left(engine, name):
            break
        wait(_LOOK_S)
        engine = seen.look(opts)
    return left(engine, name)


def left(engine: seen.Engine, name: str) -> str:
    """Why the agents do not leave the guest alone, by what the engine has shown; or nothing."""
    record = engine.registry.guests.get(name)
    if record is not None and record.state not in (IGNORED, NEW):
        why = engine.why or "the engine has not decided it yet"
        return f"its host's agent goes by what was decided before ({why})"
    if engine.why or engine.seen.settled:
        return ""
    return "no majority of the hosts has confirmed it yet"
