"""Check that the master serves the image of a new guest, before a host is asked for the guest."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import salt.fileserver
import salt.utils.url

from saltvirt import errors

SCHEME = "salt://"

log = logging.getLogger(__name__)


def check(opts: Mapping[str, Any], source: object, saltenv: object = "base") -> None:
    """Raise NotFound if this master does not serve a ``salt://`` image.

    saltenv: of the source, if its address names none. On a master of masters, hosts get files from
    their syndics' masters: nothing is checked. What the file servers cannot tell is left to the
    host.
    """
    if not isinstance(source, str) or not source.startswith(SCHEME) or opts.get("order_masters"):
        return
    if not opts.get("fileserver_backend"):
        return
    path, env = salt.utils.url.parse(source)
    env = env or str(saltenv or "base")
    if _is_in_roots(opts, path, env):
        return
    try:
        served = salt.fileserver.Fileserver(dict(opts)).find_file(path, env).get("path")
    except Exception as exc:  # depends on the file servers
        log.warning("cannot look for %s on this master: %s", source, exc)
        return
    if not served:
        raise errors.NotFound(
            f"{source} does not exist on this master (environment {env}): salt-run virt.images "
            "lists the images"
        )


def _is_in_roots(opts: Mapping[str, Any], path: str, env: str) -> bool:
    """Return whether a folder of ``file_roots`` has the file: the other file servers take longer
    to load."""
    roots = opts.get("file_roots")
    folders = roots.get(env) if isinstance(roots, Mapping) else None
    return any(
        os.path.isfile(os.path.join(str(folder), path))
        for folder in (folders if isinstance(folders, list) else ())
    )
