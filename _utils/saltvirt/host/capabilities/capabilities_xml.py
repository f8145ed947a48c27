"""libvirt's capabilities of this host as XML."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.host.connection import libvirt

# cached for jobs that create many guests; capabilities change only with packages
_MAX_AGE_S = 5
_cache: dict[str, tuple[float, str]] = {}


def read(conn: libvirt.virConnect) -> str:
    """Return the capabilities, cached for a few seconds."""
    uri = conn.getURI()
    at_s, text = _cache.get(uri, (0.0, ""))
    if not text or time.monotonic() - at_s > _MAX_AGE_S:
        text = conn.getCapabilities()
        _cache[uri] = time.monotonic(), text
    return text
