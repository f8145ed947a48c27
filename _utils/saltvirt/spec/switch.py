"""Arguments that interfaces and networks have in common: VLAN tags and virtual ports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, nested

PORT_TYPES = ("openvswitch", "midonet", "802.1Qbg", "802.1Qbh")
PARAMETERS = ("interfaceid", "profileid", "managerid", "typeid", "typeidversion", "instanceid")


@dataclass
class TagSpec(Spec):
    """One VLAN tag."""

    NONE_REMOVES = False

    id: int | None = key(values.number(0, 4095), required=True)
    native_mode: str | None = key(values.choice("tagged", "untagged"), name="nativeMode")


@dataclass
class VlanSpec(Spec):
    """VLAN tags, optionally as a trunk."""

    trunk: bool | None = key(values.boolean)
    tags: list[TagSpec] = key(values.list_of(nested(TagSpec)), required=True)

    @classmethod
    def parse_any(cls, value: Any, argument: str) -> VlanSpec:
        """From one tag's number, or a dictionary with ``tags`` and ``trunk``."""
        if isinstance(value, dict):
            return cls.parse(value, argument)
        return cls(tags=[TagSpec(id=values.number(0, 4095)(value, argument))])

    def check(self, argument: str) -> None:
        if self.trunk is False and len(self.tags) > 1:
            raise InvalidInput(f"{argument}: more than one tag needs trunk")


@dataclass
class VirtualPortSpec(Spec):
    """The port of a switch such as Open vSwitch."""

    type: str = key(values.choice(*PORT_TYPES))
    parameters: dict[str, str] | None = key(values.map_of(values.choice(*PARAMETERS), values.word))

    @classmethod
    def parse_any(cls, value: Any, argument: str) -> VirtualPortSpec:
        """From the type's name, or a dictionary with ``type`` and ``parameters``."""
        return cls.parse(value if isinstance(value, dict) else {"type": value}, argument)

    def check(self, argument: str) -> None:
        if not self.type:
            raise InvalidInput(f"{argument}: type is missing; one of {', '.join(PORT_TYPES)}")
