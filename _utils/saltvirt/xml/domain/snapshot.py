"""A snapshot of a domain."""

from saltvirt.xml.base import Child, Children, Element, Prop
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.kinds import INT


class DomainSnapshotDisk(Element):
    """``<disk>`` of a snapshot."""

    TAG = "disk"

    name = Prop("@name")
    snapshot = Prop("@snapshot")
    type = Prop("@type")
    driver_type = Prop("driver/@type")
    file = Prop("source/@file")
    dev = Prop("source/@dev")


class DomainSnapshot(Element):
    """``<domainsnapshot>``."""

    TAG = "domainsnapshot"

    name = Prop("name")
    description = Prop("description")
    state = Prop("state")
    creation_time_s = Prop("creationTime", INT)
    parent = Prop("parent/name")
    memory = Prop("memory/@snapshot")
    memory_file = Prop("memory/@file")
    disks = Children("disks/disk", DomainSnapshotDisk)
    domain = Child("domain", Domain)
