"""Images that are already on this host: files, devices and pool volumes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote

from saltvirt import errors
from saltvirt.host.provision import pool_disk
from saltvirt.host.storage import files
from saltvirt.images import cache, sources

if TYPE_CHECKING:
    import libvirt


def find(conn: libvirt.virConnect, source: str) -> cache.ImageFile | None:
    """Return the ImageFile of an image address, or None if it must be downloaded.

    A format that a domain of this host declares takes precedence over the content, which its guest
    may have written. Raises NotFound, Unsupported, OperationFailed, InvalidInput.
    """
    source_kind = sources.kind(source)
    if source_kind == sources.PATH:
        return cache.ImageFile(source, files.format_by_domains(conn, source))
    if source_kind != sources.POOL:
        return None
    pool, _, volume = source.removeprefix("pool://").partition("/")
    path, format = pool_disk.volume_image(conn, unquote(pool), unquote(volume))
    if not os.path.exists(path):
        raise errors.Unsupported(f"{source} is not a file or device on this host, but {path}")
    return cache.ImageFile(path, files.format_by_domains(conn, path) or format)
