"""The guest's IOMMU."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import INT, ON_OFF


class Iommu(Device):
    """``<iommu>``."""

    TAG = "iommu"

    model = Prop("@model")
    intremap = Prop("driver/@intremap", ON_OFF)
    caching_mode = Prop("driver/@caching_mode", ON_OFF)
    eim = Prop("driver/@eim", ON_OFF)
    iotlb = Prop("driver/@iotlb", ON_OFF)
    aw_bits = Prop("driver/@aw_bits", INT)
