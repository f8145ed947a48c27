"""Protection of disks on this host against seeding while they are in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.domain import saved_memory
from saltvirt.host.storage import files, identity, overlays, usage
from saltvirt.rights import confidential

if TYPE_CHECKING:
    import libvirt


def owners(conn: libvirt.virConnect, path: str) -> list[libvirt.virDomain]:
    """Return the domains that write to a path."""
    keys, domains = identity.keys_of(path), []
    for dom in conn.listAllDomains():
        if not keys.isdisjoint(overlays.written_paths(conn, dom)):
            domains.append(dom)
    return domains


def refuse_used(conn: libvirt.virConnect, path: str, cache_dir: str) -> None:
    """Raise Refused unless all users of a disk are stopped guests that only write to it.

    QEMU's locks do not cover devices of running guests, saved memory, or overlays. cache_dir: the
    folder of cached images.
    """
    if files.real(path).startswith(f"{files.real(cache_dir)}/"):
        raise errors.Refused(f"{path} is a cached image, from which guests are created")
    with connection.translated(f"check who uses {path}"):
        used = set(usage.read(conn, images=False).users_of(usage.keys_of(conn, path)))
        for dom in owners(conn, path):
            saved_memory.refuse(dom, "seed a disk of")
            if not dom.isActive():
                used.discard(dom.name())
        overlay = overlays.overlay_on(conn, identity.keys_of(path))
    if overlay:
        name = confidential.sensitive(overlay.guest)
        raise errors.Refused(f"cannot seed {path}: {overlay.path} of {name} is based on it")
    if used:
        raise errors.Refused(
            f"cannot seed {path}: {confidential.sensitive_names(sorted(used))} uses it"
        )
