"""Users of cached images on this host, and removal of unused images."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypedDict

from saltvirt import errors
from saltvirt.host.storage import usage
from saltvirt.images import cache
from saltvirt.rights import confidential
from saltvirt.system import bounded_io

if TYPE_CHECKING:
    import libvirt

# an init may have requested an image and not created its overlay yet
GRACE_S = 600


class Pruned(TypedDict):
    """The result of pruning.

    removed: image names. retained: {name: reason}.
    """

    removed: list[str]
    retained: dict[str, str]


def users(conn: libvirt.virConnect, images_dir: str) -> usage.Usage:
    """Return the Usage of the image cache: by domains, and by images that no domain refers to."""
    return usage.read(conn, below_folder=images_dir)


def listed(conn: libvirt.virConnect, images_dir: str) -> dict[str, dict[str, Any]]:
    """Return the cached images in the format of ``virt.images``."""
    used = users(conn, images_dir)
    return {
        note.file: {
            "path": note.path,
            "source": note.source,
            "format": note.format,
            "size_bytes": note.size_bytes,
            "allocated_bytes": bounded_io.stat(note.path).st_blocks * 512,
            "sha256": note.sums["sha256"],
            "fetched": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(note.fetched)),
            "used_by": used.users_of(usage.keys_of(conn, note.path)),
        }
        for note in cache.cached_images(images_dir)
    }


def prune(
    conn: libvirt.virConnect,
    images_dir: str,
    name: str | None = None,
    grace_s: float = GRACE_S,
    test: bool = False,
) -> Pruned:
    """Remove unused images, and interrupted downloads that no operation resumes.

    name: only this cached file; it is then an error if the file is in use. grace_s: images that
    were downloaded or requested within this time are kept. test: remove nothing.

    Returns {"removed": [names], "retained": {name: reason}}. Raises NotFound, Refused.
    """
    notes = {note.file: note for note in cache.cached_images(images_dir)}
    name = None if name is None else str(name)
    if name is not None and name not in notes:
        raise errors.NotFound(f"image {name} does not exist in {cache.folder(images_dir)}")
    removed = [] if name else cache.forget_partial(images_dir, test)
    retained: dict[str, str] = {}
    used = users(conn, images_dir)
    for note in [notes[name]] if name else sorted(notes.values(), key=lambda item: item.file):
        reason = _keep_reason(conn, used, note) or _forget(conn, images_dir, note, grace_s, test)
        if reason:
            retained[note.file] = reason
        else:
            removed.append(note.file)
    if name and retained:
        raise errors.Refused(f"image {name} is kept: {retained[name]}")
    return {"removed": removed, "retained": retained}


def _forget(
    conn: libvirt.virConnect, images_dir: str, note: cache.ImageNote, grace_s: float, test: bool
) -> str | None:
    """Remove an image unless ``test`` is set or it is in use by now; the reason for keeping it."""
    path = note.path
    with usage.prevent_open(conn, [path]) as open_reasons:
        reason = open_reasons[path] or _keep_reason(conn, users(conn, images_dir), note)
        reason = reason or _recent_use(images_dir, note.file, grace_s)
        if not reason and not test:
            cache.forget(images_dir, note.file)
    return reason


def _recent_use(images_dir: str, name: str, grace_s: float) -> str | None:
    """Return a reason for keeping an image that was requested a moment ago.

    Called last, since a request may arrive during the other checks.
    """
    used = cache.used(images_dir, name)
    return "used a few minutes ago" if used and time.time() - used < grace_s else None


def _keep_reason(conn: libvirt.virConnect, used: usage.Usage, note: cache.ImageNote) -> str | None:
    """Return the reason for keeping an image, or None."""
    keys = usage.keys_of(conn, note.path)
    users = used.users_of(keys)
    if users:
        return f"used by {confidential.sensitive_names(users)}"
    other_hosts = usage.others_may_have(conn, note.path)
    other_hosts = other_hosts and f"other hosts may use it: {other_hosts}"
    return used.keep_reason(keys) or other_hosts
