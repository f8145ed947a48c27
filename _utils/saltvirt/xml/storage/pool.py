"""A storage pool."""

from saltvirt.xml.base import Child, Children, Element, Prop
from saltvirt.xml.kinds import BYTES, YES_NO
from saltvirt.xml.storage.permissions import Permissions
from saltvirt.xml.storage.pool_source import PoolSource
from saltvirt.xml.tree import own_namespace

_FS = "http://libvirt.org/schemas/storagepool/fs/1.0"
own_namespace("fs", _FS)


class MountOption(Element):
    """``<fs:option>``: an option of mount."""

    TAG = f"{{{_FS}}}option"

    name = Prop("@name")


class Pool(Element):
    """``<pool>``; sizes in bytes."""

    TAG = "pool"

    type = Prop("@type")
    name = Prop("name")
    uuid = Prop("uuid")
    capacity_bytes = Prop("capacity", BYTES)
    allocation_bytes = Prop("allocation", BYTES)
    available_bytes = Prop("available", BYTES)
    cow = Prop("features/cow/@state", YES_NO)
    source = Child("source", PoolSource)
    path = Prop("target/path")
    permissions = Child("target/permissions", Permissions)
    mount_options = Children(f"{{{_FS}}}mount_opts/{{{_FS}}}option", MountOption)
