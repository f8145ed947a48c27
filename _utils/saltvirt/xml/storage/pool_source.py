"""The source of a pool."""

from saltvirt.xml.base import Child, Children, Element, Prop
from saltvirt.xml.devices.address import PciAddress
from saltvirt.xml.kinds import INT, YES_NO


class PoolHost(Element):
    """``<host>``."""

    TAG = "host"

    name = Prop("@name")
    port = Prop("@port", INT)


class PoolDevice(Element):
    """``<device>``."""

    TAG = "device"

    path = Prop("@path")
    part_separator = Prop("@part_separator", YES_NO)


class Adapter(Element):
    """``<adapter>``: a SCSI or fibre channel host adapter."""

    TAG = "adapter"

    type = Prop("@type")
    name = Prop("@name")
    parent = Prop("@parent")
    managed = Prop("@managed", YES_NO)
    parent_wwnn = Prop("@parent_wwnn")
    parent_wwpn = Prop("@parent_wwpn")
    parent_fabric_wwn = Prop("@parent_fabric_wwn")
    wwnn = Prop("@wwnn")
    wwpn = Prop("@wwpn")
    parent_unique_id = Prop("parentaddr/@unique_id", INT)
    parent_address = Child("parentaddr/address", PciAddress)


class PoolSource(Element):
    """``<source>`` of a pool."""

    TAG = "source"

    hosts = Children("host", PoolHost)
    devices = Children("device", PoolDevice)
    dir = Prop("dir/@path")
    adapter = Child("adapter", Adapter)
    name = Prop("name")
    initiator = Prop("initiator/iqn/@name")
    auth_type = Prop("auth/@type")
    auth_username = Prop("auth/@username")
    auth_usage = Prop("auth/secret/@usage")
    auth_uuid = Prop("auth/secret/@uuid")
    format = Prop("format/@type")
    protocol_version = Prop("protocol/@ver")
    vendor = Prop("vendor/@name")
    product = Prop("product/@name")
