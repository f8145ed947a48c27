"""Wait until agents no longer manage a guest: they follow what a majority stores, not a file on the
master."""

from __future__ import annotations

from collections.abc import Callable

from saltvirt.ha.manager import status_file
from saltvirt.ha.model.registry import IGNORED, NEW
from saltvirt.system import file_lock

# timeout for the engine to decide, to have a majority store it, and to report that
WAIT_S = 30
_POLL_S = 0.5


def wait_released(opts: file_lock.Opts, name: str, wait: Callable[[float], None]) -> str:
    """Wait until the agents no longer manage the guest. Return why they still do, or nothing. wait:
    sleeps. Raises OperationFailed for a damaged file."""
    engine = status_file.load(opts)
    for _ in range(int(WAIT_S / _POLL_S)):
        if engine.problem or not pending_reason(engine, name):
            break
        wait(_POLL_S)
        engine = status_file.load(opts)
    return pending_reason(engine, name)


def pending_reason(engine: status_file.EngineStatus, name: str) -> str:
    """Return why the agents still manage the guest, from the engine's report; or nothing."""
    record = engine.registry.guests.get(name)
    if record is not None and record.state not in (IGNORED, NEW):
        reason = engine.problem or "the engine has not decided it yet"
        return f"the agent of its host follows the previous decision ({reason})"
    if engine.problem or engine.report.settled:
        return ""
    return "no majority of the hosts has confirmed it yet"
