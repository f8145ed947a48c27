"""The guest's virtual CPUs: their number and state."""

from saltvirt.xml.base import Element, Prop
from saltvirt.xml.kinds import INT, YES_NO


class Vcpu(Element):
    """``<vcpu>`` of the domain: the maximum number, and the number at start."""

    TAG = "vcpu"

    placement = Prop("@placement")
    cpuset = Prop("@cpuset")
    current = Prop("@current", INT)
    maximum = Prop("", INT)


class VcpuState(Element):
    """One ``<vcpu>`` of ``<vcpus>``."""

    TAG = "vcpu"

    id = Prop("@id", INT)
    enabled = Prop("@enabled", YES_NO)
    hotpluggable = Prop("@hotpluggable", YES_NO)
    plug_order = Prop("@order", INT)
