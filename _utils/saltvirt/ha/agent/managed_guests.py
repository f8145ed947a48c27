"""The guests that high availability manages, from the files of this host's agent, for functions
that would start a guest in another way."""

from __future__ import annotations

from saltvirt.ha.agent import store
from saltvirt.ha.model.registry import IGNORED
from saltvirt.system import paths

FILE = f"{paths.STATE}/ha/state.json"


def assigned(host: str, path: str | None = None) -> list[str]:
    """Return the guests for which a host feeds its watchdog: those that it has, may run or is to
    get. Empty if high availability is disarmed.

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
    """Return a text that says that the guest is managed, and on which host; empty if it is not
    managed or is ignored.

    Raises BadAnswer for a damaged file.
    """
    data = store.read(path or FILE)
    if data is None:
        return ""
    stored = store.SavedFile.from_answer(data, path or FILE)
    # a majority may accept the pending registry at any moment
    for registry in (stored.pending, stored.registry):
        record = registry.guests.get(name)
        if record is not None and record.state != IGNORED:
            location = f" on {record.host}" if record.host else ""
            return f"{name} is managed by high availability{location} (salt-run virt.ha_status)"
    return ""
