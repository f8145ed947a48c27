"""The host's NUMA nodes of the guest's memory."""

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.kinds import INT


class MemNode(Element):
    """``<memnode>``: for one NUMA cell of the guest."""

    TAG = "memnode"

    cellid = Prop("@cellid", INT)
    mode = Prop("@mode")
    nodeset = Prop("@nodeset")


class NumaTune(Element):
    """``<numatune>``."""

    TAG = "numatune"

    mode = Prop("memory/@mode")
    nodeset = Prop("memory/@nodeset")
    placement = Prop("memory/@placement")
    memnodes = Children("memnode", MemNode)
