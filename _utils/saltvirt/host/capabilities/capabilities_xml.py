"""libvirt's capabilities of this host, as XML."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.host.connection import libvirt

# a job that makes many guests asks once: what the host can do changes with its packages
_MAX_AGE_S = 5
_cache: dict[str, tuple[float, str]] = {}


def read(conn: libvirt.virConnect) -> str:
    """What libvirt says now, or has told this process moments ago."""
    uri = conn.getURI()
    at_s, text = _cache.get(uri, (0.0, ""))
    if not text or time.monotonic() - at_s > _MAX_AGE_S:
        text = conn.getCapabilities()
        _cache[uri] = time.monotonic(), text
    return text
