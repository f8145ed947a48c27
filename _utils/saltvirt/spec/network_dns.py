"""The user's arguments for the DNS server of a network."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, nested
from saltvirt.spec.network_ip import ip_text
from saltvirt.xml.network.dns import Dns, Forwarder, Srv


@dataclass
class ForwarderSpec(Spec):
    """Another server, for all names or for those of a domain."""

    NONE_REMOVES = False

    domain: str | None = key(values.text, xml=Forwarder.domain)
    addr: str | None = key(ip_text, xml=Forwarder.addr)

    def check(self, argument: str) -> None:
        if not (self.domain or self.addr):
            raise InvalidInput(f"{argument}: domain or addr is needed")


@dataclass
class SrvSpec(Spec):
    """A SRV record."""

    NONE_REMOVES = False

    name: str = key(values.text, xml=Srv.service)
    protocol: str = key(values.choice("tcp", "udp"), xml=Srv.protocol)
    domain: str | None = key(values.text, xml=Srv.domain)
    target: str | None = key(values.text, xml=Srv.target)
    port: int | None = key(values.port, xml=Srv.port)
    priority: int | None = key(values.number(0, 65535), xml=Srv.priority)
    weight: int | None = key(values.number(0, 65535), xml=Srv.weight)

    def check(self, argument: str) -> None:
        if not (self.name and self.protocol):
            raise InvalidInput(f"{argument}: name and protocol are needed")


@dataclass
class DnsSpec(Spec):
    """``dns``."""

    NONE_REMOVES = False

    enable: bool | None = key(values.boolean, xml=Dns.enable)
    forwarders: list[ForwarderSpec] | None = key(values.list_of(nested(ForwarderSpec)))
    txt: dict[str, str] | None = key(values.map_of(values.text, values.text))
    hosts: dict[str, list[str]] | None = key(values.map_of(ip_text, values.list_of(values.word)))
    srvs: list[SrvSpec] | None = key(values.list_of(nested(SrvSpec)))
