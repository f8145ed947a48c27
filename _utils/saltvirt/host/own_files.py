"""Files in which a host keeps what libvirt does not, below /var/lib/salt-virt."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from saltvirt import errors


@contextlib.contextmanager
def permitted() -> Iterator[None]:
    """For the block: raises OperationFailed for a file that is not for this process, as that of a
    minion which is not root."""
    try:
        yield
    except PermissionError as exc:
        raise errors.OperationFailed(
            f"{exc.filename} is not for this minion: {exc.strerror}; it has to run as root, or as "
            "whom that file belongs to"
        ) from exc
