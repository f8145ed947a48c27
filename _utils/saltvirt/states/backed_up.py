"""State: a guest has a recent backup, through the master's runner."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING

from saltvirt.states import on_master

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


def backed_up(host: StateHost, name: str, hours: object = 24, to: str | None = None) -> Answer:
    """See ``virt.backed_up``."""
    arguments = {"guests": [glob.escape(name)], "hours": hours, "to": to}
    return on_master.run_on_master(host, name, "virt.backup_due", arguments)
