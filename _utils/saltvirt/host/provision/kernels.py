"""A kernel or initrd that the user named by an address: its place on this host."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host.storage import mounted
from saltvirt.images import sources
from saltvirt.spec.base import given

if TYPE_CHECKING:
    from saltvirt.host.provision.guest_builder import Tools
    from saltvirt.spec.boot import BootSpec

FOLDER = "_boot"


def place(boot: BootSpec | None, images_dir: str) -> dict[str, str]:
    """Points a BootSpec to files of this host; {path: address} of what is to be fetched."""
    found = {}
    for name in ("kernel", "initrd") if boot else ():
        source = given(getattr(boot, name))
        if source and "://" in source:
            digest = hashlib.sha256(source.encode()).hexdigest()[:16]
            path = os.path.join(images_dir, FOLDER, f"{digest}-{sources.stem(source)}")
            setattr(boot, name, path)
            found[path] = source
    return found


def fetch(wanted: dict[str, str], tools: Tools) -> None:
    """Fetches what :func:`place` found. Raises NotFound."""
    for path, source in wanted.items():
        tools.say("kernel", f"fetching {sources.shown(source)}")
        mounted.make_folder(os.path.dirname(path), 0o755)
        if not tools.get_url or not tools.get_url(source, path) or not os.path.exists(path):
            raise errors.NotFound(f"cannot fetch {sources.shown(source)}")
