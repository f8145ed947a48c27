"""What the user asked for of a network's DNS server."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.errors import InvalidInput
from saltvirt.spec import values as v
from saltvirt.spec.base import Part, key, part
from saltvirt.spec.network_ip import ip_text


@dataclass
class ForwarderSpec(Part):
    """Another server to ask, for all names or those of one domain."""

    NONE_REMOVES = False

    domain: str | None = key(v.text)
    addr: str | None = key(ip_text)

    def check(self, what: str) -> None:
        if not (self.domain or self.addr):
            raise InvalidInput(f"{what}: domain or addr is needed")


@dataclass
class SrvSpec(Part):
    """A SRV record."""

    NONE_REMOVES = False

    name: str = key(v.text)
    protocol: str = key(v.choice("tcp", "udp"))
    domain: str | None = key(v.text)
    target: str | None = key(v.text)
    port: int | None = key(v.port)
    priority: int | None = key(v.number(0, 65535))
    weight: int | None = key(v.number(0, 65535))

    def check(self, what: str) -> None:
        if not (self.name and self.protocol):
            raise InvalidInput(f"{what}: name and protocol are needed")


@dataclass
class DnsSpec(Part):
    """``dns``."""

    NONE_REMOVES = False

    enable: bool | None = key(v.boolean)
    forwarders: list[ForwarderSpec] | None = key(v.list_of(part(ForwarderSpec)))
    txt: dict[str, str] | None = key(v.map_of(v.text, v.text))
    hosts: dict[str, list[str]] | None = key(v.map_of(ip_text, v.list_of(v.word)))
    srvs: list[SrvSpec] | None = key(v.list_of(part(SrvSpec)))
