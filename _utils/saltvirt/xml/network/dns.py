"""The DNS server of a network."""

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.kinds import INT, YES_NO


class Forwarder(Element):
    """``<forwarder>``: another server to ask, for all or for one domain."""

    TAG = "forwarder"

    domain = Prop("@domain")
    addr = Prop("@addr")


class Txt(Element):
    """``<txt>``."""

    TAG = "txt"

    name = Prop("@name")
    value = Prop("@value")


class Hostname(Element):
    """``<hostname>``."""

    TAG = "hostname"

    text = Prop("")


class DnsHost(Element):
    """``<host>``: the names of an address."""

    TAG = "host"

    ip = Prop("@ip")
    hostnames = Children("hostname", Hostname)


class Srv(Element):
    """``<srv>``."""

    TAG = "srv"

    service = Prop("@service")
    protocol = Prop("@protocol")
    domain = Prop("@domain")
    target = Prop("@target")
    port = Prop("@port", INT)
    priority = Prop("@priority", INT)
    weight = Prop("@weight", INT)


class Dns(Element):
    """``<dns>``."""

    TAG = "dns"

    enable = Prop("@enable", YES_NO)
    forward_plain_names = Prop("@forwardPlainNames", YES_NO)
    forwarders = Children("forwarder", Forwarder)
    txts = Children("txt", Txt)
    hosts = Children("host", DnsHost)
    srvs = Children("srv", Srv)
