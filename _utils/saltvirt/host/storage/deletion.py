"""The one way in which a file goes: while no QEMU can open it, it is asked who uses it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host.storage import usage

if TYPE_CHECKING:
    import libvirt


@contextlib.contextmanager
def unused(
    conn: libvirt.virConnect,
    path: str,
    but: str | None = None,
    doomed: Collection[str] = (),
    ours: bool = False,
) -> Iterator[None]:
    """For the block nobody uses what lies at a path, and no QEMU begins to: there it is deleted, or
    something else gets its name.

    path: also of what is not there (any more). but: UUID of a domain whose definition does not
    count. doomed: real paths of images that are deleted with it. ours: this operation has just made
    it, or it is made anew whenever it is needed: nobody can have put an image on it that only an
    unreadable place holds, and a host with such a place would keep each failed disk.
    Raises OperationFailed where somebody uses it, or nobody can tell; of what is ours, only where
    somebody uses it.
    """
    with usage.closed(conn, [path]) as held:
        used, keys = usage.read(conn, but, beside=[path]), usage.keys_of(conn, path)
        users = used.of(keys, doomed)
        why = f"used by {', '.join(users)}" if users else held[path]
        if not why and not ours:
            why = used.why(keys, doomed)
        if why:
            raise errors.OperationFailed(f"{path} stays: {why}")
        yield
