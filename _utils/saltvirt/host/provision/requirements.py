"""What a guest that is asked for would take of this host, by the host's own profiles."""

import os
from dataclasses import dataclass

from saltvirt.host.connection import translated
from saltvirt.host.provision import admission, image_location
from saltvirt.host.provision.create import Creation
from saltvirt.host.storage import files
from saltvirt.images import cache
from saltvirt.placement import facts


@dataclass(frozen=True)
class _Image:
    """An image of which only the size counts."""

    virtual_size_bytes: int


class _Plan(Creation):
    """The plan for a guest, as making it begins with; nothing is made, nobody is told."""

    def image_sizes(self):
        """Notes the size of each image that is here; True when all that are needed are."""
        missing = False
        for work in self.works:
            if work.make and work.spec.image:
                source = work.spec.image
                place = image_location.find(self.conn, source)
                size = cache.here(source, self.tools.gate.images_dir, place)
                missing = missing or size is None
                work.image = _Image(size or 0)
        return not missing


def read(conn, spec, tools):
    """The facts.Needs of a guest on this host. spec: its GuestSpec.

    Raises VirtError where the guest cannot be made here, whatever room there is.
    """
    with translated(f"plan {spec.name}"):
        plan = _Plan(conn, spec, tools)
        built = plan.plan()
        image_here = plan.image_sizes()
        asked = admission.request_of(built, plan.works)
        here_bytes, elsewhere = _split(asked.disks, tools.gate.images_dir)
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
            cpu_models=_usable(plan.caps.domain) if asked.cpu_model else None,
            image_here=image_here,
        )


def _split(disks, images_dir):
    """(bytes in the images folder, the disks in other folders)."""
    own = files.real(images_dir)
    inside = [disk for disk in disks if os.path.dirname(disk.path) == own]
    others = tuple(disk for disk in disks if disk not in inside)
    return sum(disk.size_bytes for disk in inside), others


def _usable(caps):
    """The CPU models that this host can give; None where its libvirt does not tell."""
    models = caps.cpu_models if caps else {}
    return frozenset(name for name, usable in models.items() if usable) or None
