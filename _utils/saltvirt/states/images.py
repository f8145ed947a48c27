"""States of images in a host's cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states.outcome import StateOutcome
from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


def cached(host: StateHost, name: str, **options: Any) -> Answer:
    """See ``virt.image_cached``."""
    image = host.call("image_fetch", name, test=True, **options)
    outcome = StateOutcome(f"image {image['source']}", unchanged_text="is in the cache")
    if image["replaces"] is None:
        outcome.unchanged_text = "is on this host"
    if image["path"] is None:
        old = ", ".join(image["replaces"]) or None
        outcome.switch("image", old, image["source"], "fetched")
        if not host.test:
            host.call("image_fetch", name, **options)
    return answer(name, outcome.changes, outcome.comment(host.test), host.test)
