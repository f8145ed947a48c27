"""Which images of the cache are needed on this host, and taking away the others."""

import time

from saltvirt import errors
from saltvirt.host.storage import bounded, usage
from saltvirt.images import cache

# an init that has just been given an image has not made its overlay yet
GRACE_S = 600


def users(conn, images_dir):
    """The Usage by which images are needed: of domains, and of images that no domain names."""
    return usage.read(conn, below=images_dir)


def listed(conn, images_dir):
    """The cache's images, as ``virt.images`` returns them."""
    used = users(conn, images_dir)
    return {
        meta["file"]: {
            "path": meta["path"],
            "source": meta["source"],
            "format": meta["format"],
            "size_bytes": meta["size_bytes"],
            "allocated_bytes": bounded.stat(meta["path"]).st_blocks * 512,
            "sha256": meta["sums"]["sha256"],
            "fetched": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(meta["fetched"])),
            "used_by": used.of(usage.keys_of(conn, meta["path"])),
        }
        for meta in cache.known(images_dir)
    }


def prune(conn, images_dir, name=None, grace_s=GRACE_S):
    """Removes images that nothing on this host needs, and downloads that nobody goes on with.

    name: only this file of the cache; it is then an error when it is needed. grace_s: what was
    fetched or asked for within that time stays.
    Returns {"removed": [names], "kept": {name: reason}}. Raises NotFound, Refused.
    """
    found = {meta["file"]: meta for meta in cache.known(images_dir)}
    name = None if name is None else str(name)
    if name is not None and name not in found:
        raise errors.NotFound(f"there is no image {name} in {cache.folder(images_dir)}")
    done = {"removed": [] if name else cache.forget_partial(images_dir), "kept": {}}
    used = users(conn, images_dir)
    for one in [name] if name else sorted(found):
        why = _why(conn, used, found[one]) or _forget(conn, images_dir, found[one], grace_s)
        if why:
            done["kept"][one] = why
        else:
            done["removed"].append(one)
    if name and done["kept"]:
        raise errors.Refused(f"image {name} stays: {done['kept'][name]}")
    return done


def _forget(conn, images_dir, meta, grace_s):
    """Removes an image, unless somebody began to use it since the first question; why it stays."""
    path = meta["path"]
    with usage.closed(conn, [path]) as held:
        why = held[path] or _why(conn, users(conn, images_dir), meta)
        why = why or _just_used(images_dir, meta["file"], grace_s)
        if not why:
            cache.forget(images_dir, meta["file"])
    return why


def _just_used(images_dir, name, grace_s):
    """The same of an image that somebody was given a moment ago, also since the others were asked:
    so it is asked last."""
    used = cache.used(images_dir, name)
    return "used a moment ago" if used and time.time() - used < grace_s else None


def _why(conn, used, meta):
    """Why an image must stay, in words, or None."""
    keys = usage.keys_of(conn, meta["path"])
    by = used.of(keys)
    if by:
        return f"needed by {', '.join(by)}"
    others = usage.others_may_have(conn, meta["path"])
    others = others and f"other hosts may need it, too: {others}"
    return used.why(keys) or others
