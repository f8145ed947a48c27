"""Shares of the host's CPU cache and memory bandwidth (resctrl)."""

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.kinds import INT


class Cache(Element):
    """``<cache>``: a part of one cache."""

    TAG = "cache"

    id = Prop("@id", INT)
    level = Prop("@level", INT)
    type = Prop("@type")
    size = Prop("@size", INT)
    unit = Prop("@unit")


class Monitor(Element):
    """``<monitor>``: what to measure."""

    TAG = "monitor"

    level = Prop("@level", INT)
    vcpus = Prop("@vcpus")


class CacheTune(Element):
    """``<cachetune>``: for a set of vCPUs."""

    TAG = "cachetune"

    vcpus = Prop("@vcpus")
    caches = Children("cache", Cache)
    monitors = Children("monitor", Monitor)


class Node(Element):
    """``<node>``: bandwidth in percent on one NUMA node."""

    TAG = "node"

    id = Prop("@id", INT)
    bandwidth = Prop("@bandwidth", INT)


class MemoryTune(Element):
    """``<memorytune>``: for a set of vCPUs."""

    TAG = "memorytune"

    vcpus = Prop("@vcpus")
    nodes = Children("node", Node)
