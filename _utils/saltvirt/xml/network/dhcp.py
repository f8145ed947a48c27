"""The DHCP server of a network."""

from saltvirt.xml.base import Element, Prop
from saltvirt.xml.kinds import INT


class DhcpRange(Element):
    """``<range>``."""

    TAG = "range"

    start = Prop("@start")
    end = Prop("@end")
    lease_expiry = Prop("lease/@expiry", INT)
    lease_unit = Prop("lease/@unit")


class DhcpHost(Element):
    """``<host>``: a fixed address."""

    TAG = "host"

    mac = Prop("@mac")
    id = Prop("@id")
    name = Prop("@name")
    ip = Prop("@ip")
