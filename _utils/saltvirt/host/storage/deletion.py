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
    conn: libvirt.virConnect, path: str, but: str | None = None, doomed: Collection[str] = ()
) -> Iterator[None]:
    """For the block nobody uses what lies at a path, and no QEMU begins to: there it is deleted, or
    something else gets its name.

    path: also of what is not there (any more). but: UUID of a domain whose definition does not
    count. doomed: real paths of images that are deleted with it.
    Raises OperationFailed where somebody uses it, or nobody can tell.
    """
    with usage.closed(conn, [path]) as held:
        users = usage.read(conn, but, beside=[path]).of(usage.keys_of(conn, path), doomed)
        why = f"used by {', '.join(users)}" if users else held[path]
        if why:
            raise errors.OperationFailed(f"{path} stays: {why}")
        yield
