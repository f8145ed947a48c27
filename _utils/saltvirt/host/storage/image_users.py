"""Which images of the cache are needed on this host, and taking away the others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypedDict

from saltvirt import confidential, errors
from saltvirt.host.storage import bounded, usage
from saltvirt.images import cache

if TYPE_CHECKING:
    import libvirt

# an init that has just been given an image has not made its overlay yet
GRACE_S = 600


class Pruned(TypedDict):
    """removed: names. kept: {name: reason}."""

    removed: list[str]
    kept: dict[str, str]


def users(conn: libvirt.virConnect, images_dir: str) -> usage.Usage:
    """The Usage by which images are needed: of domains, and of images that no domain names."""
    return usage.read(conn, below=images_dir)


def listed(conn: libvirt.virConnect, images_dir: str) -> dict[str, dict[str, Any]]:
    """The cache's images, as ``virt.images`` returns them."""
    used = users(conn, images_dir)
    return {
        note.file: {
            "path": note.path,
            "source": note.source,
            "format": note.format,
            "size_bytes": note.size_bytes,
            "allocated_bytes": bounded.stat(note.path).st_blocks * 512,
            "sha256": note.sums["sha256"],
            "fetched": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(note.fetched)),
            "used_by": used.of(usage.keys_of(conn, note.path)),
        }
        for note in cache.known(images_dir)
    }


def prune(
    conn: libvirt.virConnect,
    images_dir: str,
    name: str | None = None,
    grace_s: float = GRACE_S,
    test: bool = False,
) -> Pruned:
    """Removes images that nothing on this host needs, and downloads that nobody goes on with.

    name: only this file of the cache; it is then an error when it is needed. grace_s: what was
    fetched or asked for within that time stays. test: removes nothing.
    Returns {"removed": [names], "kept": {name: reason}}. Raises NotFound, Refused.
    """
    found = {note.file: note for note in cache.known(images_dir)}
    name = None if name is None else str(name)
    if name is not None and name not in found:
        raise errors.NotFound(f"there is no image {name} in {cache.folder(images_dir)}")
    done: Pruned = {"removed": [] if name else cache.forget_partial(images_dir, test), "kept": {}}
    used = users(conn, images_dir)
    for one in [name] if name else sorted(found):
        why = _why(conn, used, found[one]) or _forget(conn, images_dir, found[one], grace_s, test)
        if why:
            done["kept"][one] = why
        else:
            done["removed"].append(one)
    if name and done["kept"]:
        raise errors.Refused(f"image {name} stays: {done['kept'][name]}")
    return done


def _forget(
    conn: libvirt.virConnect, images_dir: str, note: cache.ImageNote, grace_s: float, test: bool
) -> str | None:
    """Removes an image, unless somebody began to use it since the first question, or for a test;
    why it stays."""
    path = note.path
    with usage.closed(conn, [path]) as held:
        why = held[path] or _why(conn, users(conn, images_dir), note)
        why = why or _just_used(images_dir, note.file, grace_s)
        if not why and not test:
            cache.forget(images_dir, note.file)
    return why


def _just_used(images_dir: str, name: str, grace_s: float) -> str | None:
    """The same of an image that somebody was given a moment ago, also since the others were asked:
    so it is asked last."""
    used = cache.used(images_dir, name)
    return "used within the last minutes" if used and time.time() - used < grace_s else None


def _why(conn: libvirt.virConnect, used: usage.Usage, note: cache.ImageNote) -> str | None:
    """Why an image must stay, in words, or None."""
    keys = usage.keys_of(conn, note.path)
    by = used.of(keys)
    if by:
        return f"needed by {confidential.listed(by)}"
    others = usage.others_may_have(conn, note.path)
    others = others and f"other hosts may need it, too: {others}"
    return used.why(keys) or others
