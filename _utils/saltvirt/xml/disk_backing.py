"""The chain of images a disk's image is based on, as libvirt reports it."""

from __future__ import annotations

from saltvirt.xml.base import Child, Element, Prop
from saltvirt.xml.disk_source import DiskSource


class BackingStore(Element):
    """``<backingStore>``; the next one down is its own child of the same name."""

    TAG = "backingStore"

    type = Prop("@type")
    format = Prop("format/@type")
    source = Child("source", DiskSource)

    @property
    def below(self) -> BackingStore:
        """The next image of the chain, false at its end."""
        return BackingStore.at(self, ("backingStore",))
