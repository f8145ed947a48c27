"""Which images of the cache are needed on this host, and taking away the others."""

import contextlib
import os
import time
import xml.etree.ElementTree as ET
from collections import defaultdict

from saltvirt import errors
from saltvirt.host import files
from saltvirt.host.connection import libvirt
from saltvirt.images import cache

# an init that has just been given an image has not made its overlay yet
GRACE_S = 600


def _of_domains(conn):
    """(name of a domain, path that it uses, declared format or None)."""
    for dom in conn.listAllDomains():
        for tree in files.trees(dom):
            for path, format in files.named(conn, tree):
                yield dom.name(), path, format


def _of_folder(folder):
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_file(follow_symlinks=False):
                yield entry.path, entry.path


def _of_pools(conn):
    """(path, path) of the volumes, also of directories whose pool is not active."""
    for pool in conn.listAllStoragePools():
        try:
            if pool.isActive():
                for volume in pool.listAllVolumes():
                    yield volume.path(), volume.path()
                continue
            target = ET.fromstring(pool.XMLDesc()).findtext("target/path")
        except libvirt.libvirtError:  # it went away meanwhile
            continue
        if target:
            yield from _of_folder(target)


def _of_tree(images_dir):
    """(path, path) of the disks below ``virt:images``, which may belong to no pool."""
    for folder, names, _ in os.walk(images_dir):
        names[:] = [name for name in names if name != cache.BASE]
        yield from _of_folder(folder)


def users(conn, images_dir):
    """{real path: sorted names of the domains and volumes that need it}."""
    found = defaultdict(set)
    by_domain = set()
    for name, path, format in _of_domains(conn):
        for needed in files.chain(path, format):
            found[needed].add(name)
            by_domain.add(needed)
    for name, path in [*_of_pools(conn), *_of_tree(images_dir)]:
        if files.real(path) not in by_domain:
            for needed in files.chain(path)[1:]:
                found[needed].add(name)
    return {path: sorted(names) for path, names in found.items()}


def listed(conn, images_dir):
    """The cache's images, as ``virt.images`` returns them."""
    needed = users(conn, images_dir)
    return {
        meta["file"]: {
            "path": meta["path"],
            "source": meta["source"],
            "format": meta["format"],
            "size_bytes": meta["size_bytes"],
            "allocated_bytes": os.stat(meta["path"]).st_blocks * 512,
            "sha256": meta["sums"]["sha256"],
            "fetched": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(meta["fetched"])),
            "used_by": needed.get(files.real(meta["path"]), []),
        }
        for meta in cache.known(images_dir)
    }


def prune(conn, images_dir, name=None, grace_s=GRACE_S):
    """Removes images that nothing on this host needs.

    name: only this file of the cache; it is then an error when it is needed. grace_s: what was
    fetched or asked for within that time stays.
    Returns {"removed": [names], "kept": {name: reason}}. Raises NotFound, Refused.
    """
    found = {meta["file"]: meta for meta in cache.known(images_dir)}
    if name is not None and name not in found:
        raise errors.NotFound(f"there is no image {name} in {cache.folder(images_dir)}")
    done = {"removed": [], "kept": {}}
    needed = users(conn, images_dir)
    for one in [name] if name else sorted(found):
        by = needed.get(files.real(found[one]["path"]))
        recent = time.time() - found[one]["used"] < grace_s
        if by or recent:
            done["kept"][one] = f"needed by {', '.join(by)}" if by else "used a moment ago"
        else:
            cache.forget(images_dir, one)
            done["removed"].append(one)
    if name and done["kept"]:
        raise errors.Refused(f"image {name} stays: {done['kept'][name]}")
    return done
