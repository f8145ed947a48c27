"""What interfaces and networks both say of switches: VLAN tags and virtual ports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Part, key, part

PORT_TYPES = ("openvswitch", "midonet", "802.1Qbg", "802.1Qbh")
PARAMETERS = ("interfaceid", "profileid", "managerid", "typeid", "typeidversion", "instanceid")


@dataclass
class TagSpec(Part):
    """One VLAN tag."""

    NONE_REMOVES = False

    id: int | None = key(values.number(0, 4095))
    native_mode: str | None = key(values.choice("tagged", "untagged"), name="nativeMode")

    def check(self, what: str) -> None:
        if self.id is None:
            raise InvalidInput(f"{what}: id is missing")


@dataclass
class VlanSpec(Part):
    """VLAN tags, on a trunk or not."""

    trunk: bool | None = key(values.boolean)
    tags: list[TagSpec] | None = key(values.list_of(part(TagSpec)))

    @classmethod
    def parse_any(cls, value: Any, what: str) -> VlanSpec:
        """From one tag's number, or a dictionary with ``tags`` and ``trunk``."""
        if isinstance(value, dict):
            return cls.parse(value, what)
        return cls(tags=[TagSpec(id=values.number(0, 4095)(value, what))])

    def check(self, what: str) -> None:
        if not self.tags:
            raise InvalidInput(f"{what}: tags is missing")
        if self.trunk is False and len(self.tags) > 1:
            raise InvalidInput(f"{what}: more than one tag needs trunk")


@dataclass
class VirtualPortSpec(Part):
    """How to join a switch such as Open vSwitch."""

    type: str = key(values.choice(*PORT_TYPES))
    parameters: dict[str, str] | None = key(values.map_of(values.choice(*PARAMETERS), values.word))

    @classmethod
    def parse_any(cls, value: Any, what: str) -> VirtualPortSpec:
        """From the type's name, or a dictionary with ``type`` and ``parameters``."""
        return cls.parse(value if isinstance(value, dict) else {"type": value}, what)

    def check(self, what: str) -> None:
        if not self.type:
            raise InvalidInput(f"{what}: type is missing; one of {', '.join(PORT_TYPES)}")
