"""Files below /var/lib/salt-virt, in which a host keeps what libvirt does not store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from saltvirt import errors


@contextlib.contextmanager
def permitted() -> Iterator[None]:
    """Translate a PermissionError in the block into OperationFailed: the minion does not run as
    root."""
    try:
        yield
    except PermissionError as exc:
        raise errors.OperationFailed(
            f"{exc.filename} cannot be accessed by this minion: {exc.strerror}; run the minion as "
            "root, or as the owner of the file"
        ) from exc
