"""Images as they shall be: in a host's cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states.outcome import Outcome
from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


def cached(host: StateHost, name: str, **given: Any) -> Answer:
    """See ``virt.image_cached``."""
    found = host.call("image_fetch", name, test=True, **given)
    outcome = Outcome(f"image {found['source']}", quiet="is in the cache")
    if found["replaces"] is None:
        outcome.quiet = "is on this host"
    if found["path"] is None:
        old = ", ".join(found["replaces"]) or None
        outcome.switch("image", old, found["source"], "fetched")
        if not host.test:
            host.call("image_fetch", name, **given)
    return answer(name, outcome.changes, outcome.comment(host.test), host.test)
