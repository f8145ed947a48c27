"""The one way in which files go: while no QEMU can open them, it is asked who uses them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from saltvirt import confidential, errors
from saltvirt.host.storage import usage

if TYPE_CHECKING:
    import libvirt


class Plan(Protocol):
    """What would go. delete: paths, in the order in which they go; keep: path to why it stays."""

    delete: list[str]
    keep: dict[str, str]


AnyPlan = TypeVar("AnyPlan", bound=Plan)


@contextlib.contextmanager
def planned(
    conn: libvirt.virConnect, look: Callable[[], AnyPlan]
) -> Iterator[tuple[AnyPlan, list[str]]]:
    """What ``look`` plans, and what of it goes: for the block no QEMU begins to use that, and
    ``look`` was asked again meanwhile. Why the rest stays is in the plan's ``keep``."""
    todo = look()
    with usage.closed(conn, todo.delete) as held:
        now = look()
        todo.keep.update({path: why for path, why in held.items() if why})
        todo.keep.update(now.keep)
        yield todo, [path for path in todo.delete if path in now.delete and path not in todo.keep]


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
        why = f"used by {confidential.listed(users)}" if users else held[path]
        if not why and not ours:
            why = used.why(keys, doomed)
        if why:
            raise errors.OperationFailed(f"{path} stays: {why}")
        yield
