"""Why the service is asked to end: alone, or because its host goes down."""

from __future__ import annotations

import subprocess

from saltvirt.ha.agent_view import REBOOT, SHUTDOWN, STOP

_ASK = ("systemctl", "list-jobs", "--no-legend", "--no-pager", "--plain")
_ASK_S = 2
_AGAIN = ("reboot.target", "kexec.target", "soft-reboot.target")
_DOWN = ("poweroff.target", "halt.target", "shutdown.target", "exit.target")


def why(ask: tuple[str, ...] = _ASK) -> str:
    """STOP, SHUTDOWN or REBOOT: what systemd is about."""
    try:
        found = subprocess.run(ask, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return STOP
    return by_jobs(found.stdout)


def by_jobs(text: str) -> str:
    """The same, from systemd's list of jobs."""
    rows = [line.split() for line in text.splitlines()]
    begun = {row[1] for row in rows if len(row) >= 3 and row[2] == "start"}
    if begun & set(_AGAIN):
        return REBOOT
    return SHUTDOWN if begun & set(_DOWN) else STOP
