"""Until hosts go by what a person wants: agents act by what a majority keeps, whatever a file on
the master says."""

from __future__ import annotations

from collections.abc import Callable

from saltvirt.ha.manager import status_file
from saltvirt.ha.model.registry import IGNORED, NEW
from saltvirt.system import file_lock

# so long the engine may take: to decide, to have it kept by a majority, and to show that
WAIT_S = 30
_POLL_S = 0.5


def wait_released(opts: file_lock.Opts, name: str, wait: Callable[[float], None]) -> str:
    """Waits until the agents leave the guest alone. Returns why they do not, or nothing. wait:
    sleeps. Raises OperationFailed for a damaged file."""
    engine = status_file.load(opts)
    for _ in range(int(WAIT_S / _POLL_S)):
        if engine.problem or not pending_reason(engine, name):
            break
        wait(_POLL_S)
        engine = status_file.load(opts)
    return pending_reason(engine, name)


def pending_reason(engine: status_file.EngineStatus, name: str) -> str:
    """Why the agents do not leave the guest alone, by what the engine has shown; or nothing."""
    record = engine.registry.guests.get(name)
    if record is not None and record.state not in (IGNORED, NEW):
        reason = engine.problem or "the engine has not decided it yet"
        return f"its host's agent goes by what was decided before ({reason})"
    if engine.problem or engine.report.settled:
        return ""
    return "no majority of the hosts has confirmed it yet"
