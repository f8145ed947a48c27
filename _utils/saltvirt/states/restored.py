"""State: a guest exists, or is restored from a backup, through the master's runner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states import on_master

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


def restored(state: StateHost, name: str, /, source: str | None = None, **options: Any) -> Answer:
    """See ``virt.restored``."""
    arguments = {word: value for word, value in options.items() if value is not None}
    arguments |= {"name": source, "new": name} if source not in (None, name) else {"name": name}
    return on_master.run_on_master(
        state, name, "virt.backup_restore", {**arguments, "missing": True}
    )
