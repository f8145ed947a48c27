"""Detect why the service is asked to stop: alone, or because its host is shutting down."""

from __future__ import annotations

import subprocess

from saltvirt.ha.model.agent_view import REBOOT, SHUTDOWN, STOP

_ASK = ("systemctl", "list-jobs", "--no-legend", "--no-pager", "--plain")
_ASK_S = 2
_REBOOT_TARGETS = ("reboot.target", "kexec.target", "soft-reboot.target")
_SHUTDOWN_TARGETS = ("poweroff.target", "halt.target", "shutdown.target", "exit.target")


def detect(ask: tuple[str, ...] = _ASK) -> str:
    """Return STOP, SHUTDOWN or REBOOT, from systemd's current jobs."""
    try:
        result = subprocess.run(ask, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return STOP
    return from_jobs(result.stdout)


def from_jobs(text: str) -> str:
    """Return the same from the output of systemctl list-jobs."""
    rows = [line.split() for line in text.splitlines()]
    starting = {row[1] for row in rows if len(row) >= 3 and row[2] == "start"}
    if starting & set(_REBOOT_TARGETS):
        return REBOOT
    return SHUTDOWN if starting & set(_SHUTDOWN_TARGETS) else STOP
