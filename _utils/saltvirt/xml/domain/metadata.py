"""Salt Virt's record in a domain: what was created for it, from which image, and the names of
devices."""

from __future__ import annotations

from saltvirt.xml import tree
from saltvirt.xml.base import Child, Children, Element, Prop
from saltvirt.xml.kinds import INT, YES_NO

NAMESPACE = "https://saltproject.io/xmlns/salt-virt/1"
tree.own_namespace("saltvirt", NAMESPACE)
LIBOSINFO = "http://libosinfo.org/xmlns/libvirt/domain/1.0"
tree.own_namespace("libosinfo", LIBOSINFO)


def tag(name: str) -> str:
    """The name in Salt Virt's namespace, as ElementTree writes it."""
    return f"{{{NAMESPACE}}}{name}"


class OwnDisk(Element):
    """A disk that Salt Virt created, and may delete with the guest. seeded: whether it has the
    seeded system."""

    TAG = tag("disk")

    target = Prop("@target")
    path = Prop("@path")
    pool = Prop("@pool")
    volume = Prop("@volume")
    size_bytes = Prop("@size", INT)
    seeded = Prop("@seeded", YES_NO)


class NamedDisk(Element):
    """The name under which a disk of the guest was requested. It does not permit deletion of the
    disk: only an OwnDisk does."""

    TAG = tag("named-disk")

    name = Prop("@name")
    target = Prop("@target")
    path = Prop("@path")
    pool = Prop("@pool")
    volume = Prop("@volume")
    server = Prop("@server")


class NamedInterface(Element):
    """The name under which an interface of the guest was requested."""

    TAG = tag("named-interface")

    name = Prop("@name")
    mac = Prop("@mac")


class DeviceNames(Element):
    """``<saltvirt:devices>``: absent for guests that Salt Virt neither created nor changed."""

    TAG = tag("devices")

    version = Prop("@version")
    disks = Children(tag("named-disk"), NamedDisk)
    interfaces = Children(tag("named-interface"), NamedInterface)


class MetadataEntry(Element):
    """A user-defined value."""

    TAG = tag("entry")

    key = Prop("@key")
    value = Prop("")


class GuestRecord(Element):
    """``<saltvirt:guest>``. creating: the process that creates the guest; mark: of the files that
    this creation makes, absent if there are none. A complete guest has neither. os: the requested
    operating system."""

    TAG = tag("guest")

    version = Prop("@version")
    created = Prop("@created")
    seeded = Prop("@seeded", YES_NO)
    creating = Prop("@creating")
    mark = Prop("@mark")
    os = Prop(tag("os"))
    image = Prop(tag("image"))
    image_hash = Prop(tag("image") + "/@hash")
    disks = Children(tag("disk"), OwnDisk)
    devices = Child(tag("devices"), DeviceNames)
    entries = Children(tag("entry"), MetadataEntry)
