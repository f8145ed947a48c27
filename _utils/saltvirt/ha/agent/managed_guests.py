"""Which guests high availability keeps, as this host's agent has it: for who is about to start one
by another way."""

from __future__ import annotations

from saltvirt.ha.agent import store
from saltvirt.ha.model.registry import IGNORED
from saltvirt.host import paths

FILE = f"{paths.STATE}/ha/kept.json"


def assigned(host: str, path: str | None = None) -> list[str]:
    """The guests for which a host feeds its watchdog: those that it has, may run, or is to get.
    None where high availability is disarmed.

    Raises BadAnswer for a damaged file, OSError.
    """
    data = store.read(path or FILE)
    if data is None:
        return []
    stored = store.SavedFile.from_answer(data, path or FILE)
    names: set[str] = set()
    for registry in (stored.pending, stored.registry):
        if registry.armed:
            names |= {name for name, record in registry.guests.items() if record.is_of(host)}
    return sorted(names)


def describe(name: str, path: str | None = None) -> str:
    """Who keeps the guest, and where; nothing of one that is not kept, or is left alone for now.

    Raises BadAnswer for a damaged file.
    """
    data = store.read(path or FILE)
    if data is None:
        return ""
    stored = store.SavedFile.from_answer(data, path or FILE)
    # what is not decided by a majority yet may be so at any moment
    for registry in (stored.pending, stored.registry):
        record = registry.guests.get(name)
        if record is not None and record.state != IGNORED:
            location = f" on {record.host}" if record.host else ""
            return f"{name} is kept by high availability{location} (salt-run virt.ha_status)"
    return ""
