"""What a guest that is asked for would take of this host, by the host's own profiles."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from saltvirt.host.connection import translated
from saltvirt.host.provision import admission, image_location
from saltvirt.host.provision.create import Creation
from saltvirt.host.storage import files
from saltvirt.images import cache
from saltvirt.placement import facts

if TYPE_CHECKING:
    import libvirt

    from saltvirt.design.caps import Caps
    from saltvirt.host.provision.guest_builder import Tools
    from saltvirt.placement.facts import Disk
    from saltvirt.spec.guest import GuestSpec


class _Plan(Creation):
    """The plan for a guest, as making it begins with; nothing is made, nobody is told."""

    def image_sizes(self) -> bool:
        """Notes the size of each image that is here; True when all that are needed are."""
        missing = False
        for work in self.works:
            if work.make and work.spec.image:
                source = work.spec.image
                place = image_location.find(self.conn, source)
                size = cache.here(source, self.tools.admission_config.images_dir, place)
                missing = missing or size is None
                # of which only the size counts
                work.image = cache.CachedImage("", "raw", size or 0, None, source)
        return not missing


def read(conn: libvirt.virConnect, spec: GuestSpec, tools: Tools) -> facts.Needs:
    """The facts.Needs of a guest on this host. spec: its GuestSpec.

    Raises VirtError where the guest cannot be made here, whatever room there is.
    """
    with translated(f"plan {spec.name}"):
        plan = _Plan(conn, spec, tools)
        plan.look_for_leftover()  # which is removed before
        built = plan.plan()
        image_here = plan.image_sizes()
        asked = admission.request_of(built, plan.works)
        here_bytes, elsewhere = _split(asked.disks, tools.admission_config.images_dir)
        return facts.Needs(
            vcpus=asked.vcpus,
            memory_kib=asked.memory_kib,
            max_memory_kib=asked.max_memory_kib,
            page_kib=asked.page_kib,
            disk_bytes=here_bytes,
            disks=elsewhere,
            pools=asked.pools,
            bridges=asked.bridges,
            networks=asked.networks,
            cpu_model=asked.cpu_model,
            cpu_models=_usable(plan.caps) if asked.cpu_model else None,
            image_here=image_here,
        )


def _split(disks: Collection[Disk], images_dir: str) -> tuple[int, tuple[Disk, ...]]:
    """(bytes in the images folder, the disks in other folders)."""
    own = files.real(images_dir)
    inside = [disk for disk in disks if os.path.dirname(disk.path or "") == own]
    others = tuple(disk for disk in disks if disk not in inside)
    return sum(disk.size_bytes for disk in inside), others


def _usable(caps: Caps | None) -> frozenset[str] | None:
    """The CPU models that this host can give; None where its libvirt does not tell."""
    models = caps.domain.cpu_models if caps and caps.domain else {}
    return frozenset(name for name, usable in models.items() if usable) or None
