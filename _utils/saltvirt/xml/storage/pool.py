"""A storage pool."""

from saltvirt.xml.base import Child, Element, Prop
from saltvirt.xml.kinds import BYTES, YES_NO
from saltvirt.xml.storage.permissions import Permissions
from saltvirt.xml.storage.pool_source import PoolSource


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
