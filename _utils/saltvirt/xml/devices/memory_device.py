"""A memory device of the guest: a module, or a virtio device."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import KIB


class MemoryDevice(Device):
    """``<memory>`` below ``<devices>``."""

    TAG = "memory"

    model = Prop("@model")
    size_kib = Prop("target/size", KIB)
