"""The backing of the guest's memory on the host."""

from __future__ import annotations

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.kinds import FLAG, INT


class HugePage(Element):
    """``<page>``: huge pages of one size for some NUMA cells."""

    TAG = "page"

    size = Prop("@size", INT)
    unit = Prop("@unit")
    nodeset = Prop("@nodeset")


class MemoryBacking(Element):
    """``<memoryBacking>``."""

    TAG = "memoryBacking"

    hugepages = Prop("hugepages", FLAG)
    pages = Children("hugepages/page", HugePage)
    nosharepages = Prop("nosharepages", FLAG)
    locked = Prop("locked", FLAG)
    source = Prop("source/@type")
    access = Prop("access/@mode")
    allocation = Prop("allocation/@mode")
    discard = Prop("discard", FLAG)
