"""A volume of a storage pool."""

from saltvirt.xml.base import Child, Element, Prop
from saltvirt.xml.kinds import BYTES, FLAG, INT
from saltvirt.xml.storage.permissions import Permissions


class Volume(Element):
    """``<volume>``; sizes in bytes."""

    TAG = "volume"

    type = Prop("@type")
    name = Prop("name")
    key = Prop("key")
    capacity_bytes = Prop("capacity", BYTES)
    allocation_bytes = Prop("allocation", BYTES)
    physical_bytes = Prop("physical", BYTES)
    path = Prop("target/path")
    format = Prop("target/format/@type")
    permissions = Child("target/permissions", Permissions)
    compat = Prop("target/compat")
    nocow = Prop("target/nocow", FLAG)
    cluster_size_bytes = Prop("target/clusterSize", INT)
    lazy_refcounts = Prop("target/features/lazy_refcounts", FLAG)
    encryption_format = Prop("target/encryption/@format")
    encryption_secret = Prop("target/encryption/secret/@uuid")
    backing_path = Prop("backingStore/path")
    backing_format = Prop("backingStore/format/@type")
