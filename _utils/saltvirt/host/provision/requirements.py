"""Resources that a requested guest needs on this host, with the host's own profiles."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from saltvirt.host.connection import translated
from saltvirt.host.provision import admission, image_location
from saltvirt.host.provision.create import CreationBuilder
from saltvirt.host.storage import files
from saltvirt.images import cache
from saltvirt.placement import facts

if TYPE_CHECKING:
    import libvirt

    from saltvirt.design.caps import Caps
    from saltvirt.host.provision.guest_builder import Tools
    from saltvirt.placement.facts import DiskFootprint
    from saltvirt.spec.guest_spec import GuestSpec


class _PlanOnly(CreationBuilder):
    """Plans a guest without creating it or reporting steps."""

    def image_sizes(self) -> bool:
        """Set the size of each image on this host; return whether all needed images are here."""
        is_missing = False
        for build in self.builds:
            if build.make and build.spec.image:
                source = build.spec.image
                image_file = image_location.find(self.conn, source)
                size = cache.cached_size_bytes(
                    source, self.tools.admission_config.images_dir, image_file
                )
                is_missing = is_missing or size is None
                # only the size matters
                build.image = cache.CachedImage("", "raw", size or 0, None, source)
        return not is_missing


def read(conn: libvirt.virConnect, spec: GuestSpec, tools: Tools) -> facts.Needs:
    """Return the facts.Needs of a guest on this host.

    Raises VirtError if the guest cannot be created here regardless of capacity.
    """
    with translated(f"plan {spec.name}"):
        plan = _PlanOnly(conn, spec, tools)
        plan.find_leftover()  # leftovers are removed first
        definition = plan.plan()
        image_here = plan.image_sizes()
        request = admission.request_of(definition, plan.builds)
        here_bytes, elsewhere = _split(request.disks, tools.admission_config.images_dir)
        return facts.Needs(
            vcpus=request.vcpus,
            memory_kib=request.memory_kib,
            max_memory_kib=request.max_memory_kib,
            page_kib=request.page_kib,
            disk_bytes=here_bytes,
            disks=elsewhere,
            pools=request.pools,
            bridges=request.bridges,
            networks=request.networks,
            cpu_model=request.cpu_model,
            cpu_models=_usable(plan.caps) if request.cpu_model else None,
            image_here=image_here,
        )


def _split(
    disks: Collection[DiskFootprint], images_dir: str
) -> tuple[int, tuple[DiskFootprint, ...]]:
    """Return (bytes in the images folder, disks in other folders)."""
    images_path = files.real(images_dir)
    inside = [disk for disk in disks if os.path.dirname(disk.path or "") == images_path]
    elsewhere = tuple(disk for disk in disks if disk not in inside)
    return sum(disk.size_bytes for disk in inside), elsewhere


def _usable(caps: Caps | None) -> frozenset[str] | None:
    """Return the CPU models that the host supports; None if libvirt does not report them."""
    models = caps.domain.cpu_models if caps and caps.domain else {}
    return frozenset(name for name, usable in models.items() if usable) or None
