"""The one way in which files go: while no QEMU can open them, it is asked who uses them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from saltvirt import errors
from saltvirt.host.storage import usage
from saltvirt.rights import confidential

if TYPE_CHECKING:
    import libvirt


class Plan(Protocol):
    """What would go. delete: paths, in the order in which they go; keep: path to why it stays."""

    delete: list[str]
    keep: dict[str, str]


AnyPlan = TypeVar("AnyPlan", bound=Plan)


@contextlib.contextmanager
def deletion_plan(
    conn: libvirt.virConnect, make_plan: Callable[[], AnyPlan]
) -> Iterator[tuple[AnyPlan, list[str]]]:
    """What ``look`` plans, and what of it goes: for the block no QEMU begins to use that, and
    ``look`` was asked again meanwhile. Why the rest stays is in the plan's ``keep``."""
    plan = make_plan()
    with usage.prevent_open(conn, plan.delete) as open_reasons:
        current_plan = make_plan()
        plan.keep.update({path: reason for path, reason in open_reasons.items() if reason})
        plan.keep.update(current_plan.keep)
        yield (
            plan,
            [path for path in plan.delete if path in current_plan.delete and path not in plan.keep],
        )


@contextlib.contextmanager
def ensure_unused(
    conn: libvirt.virConnect,
    path: str,
    exclude_uuid: str | None = None,
    to_delete: Collection[str] = (),
    is_own: bool = False,
) -> Iterator[None]:
    """For the block nobody uses what lies at a path, and no QEMU begins to: there it is deleted, or
    something else gets its name.

    path: also of what is not there (any more). exclude_uuid: UUID of a domain whose definition does
    not
    count. to_delete: real paths of images that are deleted with it. is_own: this operation has just
    made
    it, or it is made anew whenever it is needed: nobody can have put an image on it that only an
    unreadable place holds, and a host with such a place would keep each failed disk.
    Raises OperationFailed where somebody uses it, or nobody can tell; of what is ours, only where
    somebody uses it.
    """
    with usage.prevent_open(conn, [path]) as open_reasons:
        used, keys = usage.read(conn, exclude_uuid, sibling_paths=[path]), usage.keys_of(conn, path)
        users = used.users_of(keys, to_delete)
        reason = f"used by {confidential.sensitive_names(users)}" if users else open_reasons[path]
        if not reason and not is_own:
            reason = used.keep_reason(keys, to_delete)
        if reason:
            raise errors.OperationFailed(f"{path} stays: {reason}")
        yield
