"""What is done when a hypervisor starts: once at a time, and once more for all that came meanwhile.

Any minion fires start events as often as it likes, with any name in them.
"""

import os
from pathlib import Path

from saltvirt.operations import held


def once(opts, host, begin):
    """Calls ``begin`` when nobody else does so for this host; waits for who does.

    Returns its result; None when another waits already, whose turn will see what is new, too.
    Raises OperationFailed after ``virt:queue_timeout``.
    """
    folder = Path(opts["cachedir"]) / "virt" / "starts"
    folder.mkdir(parents=True, exist_ok=True)
    what, running = f"what {host} gets at its start", folder / host
    waiting = held.take(folder / f"{host}.next", what)
    if waiting is None:
        return None
    try:
        handle = held.wait(opts, lambda: held.take(running, what), lambda: held.owner(running))
    finally:
        os.close(waiting)
    try:
        return begin()
    finally:
        os.close(handle)
