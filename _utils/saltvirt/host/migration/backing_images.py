"""Copy the backing images of thin disks: each is copied to a target once, and stays there.

libvirt cannot rename a file of another host. While an image is copied, a file ``.NAME.coming``
exists beside it: the migration that creates that file copies, all others wait until it is removed,
or until the image has not grown for a minute. A complete image stays, because other guests may be
based on it by then.

An image of the cache is named by its content. It is recorded in the target's cache as in ours, so
that the next guest uses it and ``virt.image_prune`` knows it.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host.migration import same_content
from saltvirt.migration import storage
from saltvirt.migration.facts import BackingFile

if TYPE_CHECKING:
    from saltvirt.host.migration.target_files import MigrationTarget

# seconds without growth after which another migration's copy is taken for dead
STALLED_S = 60
_MODE = "0444"


def transfer(target: MigrationTarget, base: BackingFile) -> None:
    """Ensure that the target has the image, complete and equal to ours.

    target: a MigrationTarget; base: from a storage.DiskPlan. Raises MigrationFailed.
    """
    path, named_by_content = base.path, storage.by_content(base.path)
    is_ours = _ensure_copy(target, base) or named_by_content
    if not is_ours and not same_content.equals_remote(target.peer, path):
        raise errors.MigrationFailed(
            f"the target has a different {path}, not the backing file of the guest's disk"
        )
    if named_by_content:
        _record(target, path)


def _ensure_copy(target: MigrationTarget, base: BackingFile) -> bool:
    """Return True if this migration has copied the image, False if it existed or another migration
    copied it."""
    while not _is_available(target, base):
        with contextlib.suppress(errors.AlreadyExists):  # another migration was faster
            _copy(target, base)
            return True
    return False


def _copy(target: MigrationTarget, base: BackingFile) -> None:
    """Copy the image. Raises AlreadyExists if another migration copies it, or has copied it."""
    path, incoming = base.path, storage.incoming_path(base.path)
    target.create_file(incoming, "raw", 0, None)
    try:
        before = _fingerprint(path)
        target.report_step(f"copying the image {path}")
        target.copy(path, _MODE)
    except errors.AlreadyExists:
        target.remove(incoming)
        raise
    if _fingerprint(path) != before or target.size(path) != base.file_bytes:
        raise errors.MigrationFailed(f"{path} changed during the copy: try again")
    same_content.remember(target.peer, path)
    target.retain(path)
    target.remove(incoming)


def _fingerprint(path: str) -> tuple[int, int, int]:
    """Return the values that change when the file is written to."""
    stat = os.stat(path)
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _is_available(target: MigrationTarget, base: BackingFile) -> bool:
    """Return whether the target has the complete image; wait for another migration that copies
    it."""
    path, since = base.path, time.monotonic()
    last_state: tuple[int | None, bool] | None = None
    while True:
        size, busy = target.size(path), target.size(storage.incoming_path(path)) is not None
        if not busy and size in (None, base.file_bytes):
            return size is not None
        if last_state is None:
            target.report_step(f"waiting for the image {path}, which another migration is copying")
        if (size, busy) != last_state:
            last_state, since = (size, busy), time.monotonic()
        elif time.monotonic() - since > STALLED_S:
            raise errors.MigrationFailed(
                f"{path} on the target is incomplete and does not grow: virt.repair completes "
                "the migration that left it; otherwise find out who uses it, and remove it "
                f"and {storage.incoming_path(path)} there"
            )
        target.watch.check_abort()
        time.sleep(1)


def _record(target: MigrationTarget, path: str) -> None:
    """Copy our cache's record of the image to the target's cache."""
    folder, name = os.path.split(path)
    record = os.path.join(folder, ".meta", f"{name}.json")
    if os.path.exists(record):
        with contextlib.suppress(errors.AlreadyExists):
            target.copy(record, "0600")
            target.retain(record)
