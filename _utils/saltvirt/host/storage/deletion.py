"""Safe deletion of files: users are checked while no QEMU process can open the files."""

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
    """A deletion plan.

    delete: paths in the order of deletion. keep: path to the reason for keeping it.
    """

    delete: list[str]
    keep: dict[str, str]


AnyPlan = TypeVar("AnyPlan", bound=Plan)


@contextlib.contextmanager
def deletion_plan(
    conn: libvirt.virConnect, make_plan: Callable[[], AnyPlan]
) -> Iterator[tuple[AnyPlan, list[str]]]:
    """Yield the plan and the paths that can be deleted.

    No QEMU process can start to use these paths within the block. ``make_plan`` is called again
    after they are locked; paths that are in use by then move to the plan's ``keep``.
    """
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
    """Ensure that a path is unused within the block, to delete or replace it.

    path: need not exist. exclude_uuid: UUID of a domain to ignore. to_delete: real paths of images
    that are deleted as well. is_own: this operation created the file, or it is recreated on demand.
    An unreadable location then does not prevent the deletion, as no image on it can be based on the
    file; otherwise a host with such a location would keep each failed disk.

    Raises OperationFailed if the path is in use, or, unless ``is_own``, if that cannot be ruled
    out.
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
