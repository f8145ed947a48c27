"""States of guests of high availability, through the master's runner, because only the master
decides which guests are managed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states import on_master

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


def enabled(host: StateHost, name: str, **options: Any) -> Answer:
    """See ``virt.ha_enabled``."""
    arguments = {word: value for word, value in options.items() if value is not None}
    return on_master.run_on_master(host, name, "virt.ha_enable", {"name": name, **arguments})


def disabled(host: StateHost, name: str) -> Answer:
    """See ``virt.ha_disabled``."""
    return on_master.run_on_master(host, name, "virt.ha_disable", {"name": name, "missing": True})
