"""What a guest that is asked for would take of this host, by the host's own profiles."""

from dataclasses import dataclass

from saltvirt.host import admit, image_place
from saltvirt.host.connection import translated
from saltvirt.host.create import Creation
from saltvirt.images import cache


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
                place = image_place.find(self.conn, source)
                size = cache.here(source, self.tools.gate.images_dir, place)
                missing = missing or size is None
                work.image = _Image(size or 0)
        return not missing


def read(conn, spec, tools):
    """What ``virt.inventory`` tells of a guest (spec: its GuestSpec): see there.

    Raises VirtError where the guest cannot be made here, whatever room there is.
    """
    with translated(f"plan {spec.name}"):
        plan = _Plan(conn, spec, tools)
        built = plan.plan()
        here = plan.image_sizes()
        asked = admit.request_of(built, plan.works)
        return {
            "disk_bytes": asked.disk_bytes,
            "pools": asked.pools,
            "bridges": sorted(asked.bridges),
            "networks": sorted(asked.networks),
            "cpu_model": asked.cpu_model,
            "cpu_models": _usable(plan.caps.domain) if asked.cpu_model else None,
            "image_here": here,
        }


def _usable(caps):
    """The CPU models that this host can give; None where its libvirt does not tell."""
    models = caps.cpu_models if caps else {}
    return sorted(name for name, usable in models.items() if usable) or None
