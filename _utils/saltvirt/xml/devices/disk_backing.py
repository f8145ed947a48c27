"""The backing chain of a disk's image, as libvirt reports it."""

from __future__ import annotations

from saltvirt.xml.base import Child, Element, Prop
from saltvirt.xml.devices.disk_source import DiskSource


class BackingStore(Element):
    """``<backingStore>``: the next image of the chain."""

    TAG = "backingStore"

    type = Prop("@type")
    format = Prop("format/@type")
    source = Child("source", DiskSource)
