"""An image as a state wants it: in this host's cache."""

from saltvirt.images import cache, sources
from saltvirt.states.desired import Outcome


def cached(source, images_dir, download, image_hash=None, test=False):
    """Has the image in the cache in the version that its address has now; the Outcome."""
    outcome = Outcome(f"image {sources.shown(source)}", quiet="is in the cache")
    if sources.kind(source) == sources.PATH:
        outcome.quiet = "is on this host"
    if cache.look(source, images_dir, download, image_hash):
        return outcome
    before = [m["file"] for m in cache.known(images_dir) if m["source"] == sources.shown(source)]
    old = ", ".join(before) or None
    outcome.switch("image", old, sources.shown(source), "fetched")
    if not test:
        cache.fetch(source, images_dir, download, image_hash)
    return outcome
