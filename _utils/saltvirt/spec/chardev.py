"""The user's arguments for serial ports and consoles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key
from saltvirt.xml.devices.chardev import CharDevice

TYPES = ("pty", "tcp", "udp", "file", "dev", "pipe", "unix", "null", "stdio", "vc", "nmdm")
PATH_NEEDED = ("file", "dev", "pipe")
DEFAULT_PORT = 23023
LOCAL = "127.0.0.1"


@dataclass
class CharSpec(Spec):
    """One serial port or console."""

    NONE_REMOVES = False

    type: str | None = key(values.choice(*TYPES))
    path: str | None = key(values.path)
    host: str | None = key(values.address)
    port: int | None = key(values.port)
    protocol: str | None = key(values.choice("telnet", "raw", "telnets", "tls"))
    tls: bool | None = key(values.boolean)
    target_port: int | None = key(values.number(0, 127), xml=CharDevice.target_port)
    target_type: str | None = key(values.word, xml=CharDevice.target_type)
    log_file: str | None = key(values.path, xml=CharDevice.log_file)

    @classmethod
    def parse_any(cls, value: Any, argument: str) -> CharSpec:
        """From the type's name, or a dictionary."""
        return cls.parse(value if isinstance(value, dict) else {"type": value}, argument)

    def check(self, argument: str) -> None:
        if self.type is None and (self.host or self.port or self.protocol):
            self.type = "tcp"
        if self.type in PATH_NEEDED and not self.path:
            raise InvalidInput(f"{argument}: type {self.type} needs a path")

    def complete(self) -> CharSpec:
        """A copy with the defaults of a new device."""
        result = replace(self, type=self.type or "pty")
        if result.type in ("tcp", "udp"):
            result.host, result.port = result.host or LOCAL, result.port or DEFAULT_PORT
        if result.type == "tcp":
            result.protocol = result.protocol or "telnet"
        return result


def parse(value: Any, argument: str) -> list[CharSpec] | None:
    """A list of CharSpec from a list, a dictionary or a type; None if not given."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        value = [value]
    return values.list_of(CharSpec.parse_any)(value, argument)
