"""The user's arguments for the display."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, value_or_none
from saltvirt.xml.devices.graphics import Graphics

TYPES = ("vnc", "spice", "none", "sdl", "rdp", "egl-headless")


def _listen(value: Any, argument: str) -> ListenSpec:
    """A dictionary, or just the address."""
    return ListenSpec.parse({"address": value} if isinstance(value, str) else value, argument)


@dataclass
class ListenSpec(Spec):
    """Where to listen; ``type: none``: nowhere."""

    NONE_REMOVES = False

    type: str | None = key(values.choice("address", "network", "socket", "none", "None"))
    address: str | None = key(values.address)
    network: str | None = key(values.text)
    socket: str | None = key(values.path)

    def check(self, argument: str) -> None:
        self.type = (self.type or ("network" if self.network else "address")).lower()
        if self.type == "network" and not self.network:
            raise InvalidInput(f"{argument}: network is missing")
        if self.address and ":" in self.address:
            try:
                ipaddress.ip_address(self.address)
            except ValueError as exc:
                raise InvalidInput(f"{argument}: {self.address!r} is not an address") from exc


@dataclass
class GraphicsSpec(Spec):
    """The ``graphics`` argument. Neither its repr nor errors contain the password."""

    type: str = key(values.choice(*TYPES))
    port: int | None = key(values.port)
    tls_port: int | None = key(values.port)
    listen: ListenSpec | None = key(_listen)
    password: str | None = key(values.secret, repr=False, xml=Graphics.password)
    keymap: str | None = key(values.word, xml=Graphics.keymap)
    websocket: int | None = key(values.number(-1, 65535), xml=Graphics.websocket)

    def check(self, argument: str) -> None:
        if not value_or_none(self.type):
            raise InvalidInput(f"{argument}: type is missing; one of {', '.join(TYPES)}")
        if value_or_none(self.tls_port) and self.type != "spice":
            raise InvalidInput(f"{argument}: tls_port is for spice")


def parse_graphics(value: Any, argument: str = "graphics") -> GraphicsSpec | None:
    """A GraphicsSpec from a dictionary or a type; None if not given."""
    if value is None:
        return None
    just_type = isinstance(value, str) and (value.isalnum() or value in TYPES)
    return GraphicsSpec.parse({"type": value} if just_type else value, argument)
