"""The images that thin disks stand on: each comes to the target once, and stays there.

An image of the cache is named by its content. It is recorded in the target's cache as in
ours, so that the next guest finds it and ``virt.image_prune`` knows it.
"""

import os
import time

from saltvirt import errors
from saltvirt.host import migrate_recover
from saltvirt.migration import storage

# a copy that another migration has begun and that does not grow for so long has died
STALLED_S = 60
_MODE = "0444"


def bring(target, base):
    """Sees to it that the target has the image whole.

    target: a migrate_prepare.Target; base: of a storage.DiskPlan.
    """
    path = base["path"]
    if not storage.by_content(path):
        if target.size(path) is None:
            _copy(target, path)
        return
    if not _awaited(target, base):
        try:
            _copy(target, path)
        except errors.AlreadyExists:  # another migration was quicker
            if not _awaited(target, base):
                raise
        target.keep(path)
    _record(target, path)


def _copy(target, path):
    target.say(f"copying the image {path}")
    target.copy(path, _MODE, undo=_unless_needed)


def _unless_needed(peer, path):
    """Other guests may have come to stand on it meanwhile."""
    migrate_recover.clean_target(peer, [path])


def _awaited(target, base):
    """Whether the whole image is there; waits for another migration that is bringing it."""
    path, seen, since = base["path"], None, time.monotonic()
    while True:
        size = target.size(path)
        if size is None or size == base["file_bytes"]:
            return size is not None
        if seen is None:
            target.say(f"waiting for the image {path}, which another migration is copying")
        if size != seen:
            seen, since = size, time.monotonic()
        elif time.monotonic() - since > STALLED_S:
            raise errors.MigrationFailed(
                f"{path} on the target is incomplete and does not grow: virt.repair ends the "
                "migration that has left it, else remove it there"
            )
        target.watch.end_if_asked()
        time.sleep(1)


def _record(target, path):
    """What our cache knows of the image, for the target's."""
    folder, name = os.path.split(path)
    record = os.path.join(folder, ".meta", f"{name}.json")
    if os.path.exists(record) and target.size(record) is None:
        target.copy(record, "0600")
        target.keep(record)
