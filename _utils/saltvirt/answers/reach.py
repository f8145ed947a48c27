"""Answers about screens and serial ports of guests."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt import errors
from saltvirt.schema import Message

DISPLAY, SERIAL, AGENT = "display", "serial", "agent"
# kinds of tickets; only the runner connects to a guest's agent
KINDS = (DISPLAY, SERIAL)
# the name in the certificate of each endpoint, each of which has a CA of its own
CERTIFICATE_NAME = "salt-virt-reach"
# the first line that the client receives; the last two precede the reason
ACCEPTED, REFUSED, IN_USE = b"ok\n", "no ", "busy "


class InUse(errors.OperationFailed):
    """Another client is connected to the serial port."""


@dataclass(frozen=True)
class Reach(Message):
    """Answer of `virt.reach`: the endpoint for a single client. kind: DISPLAY or SERIAL. authority:
    PEM of the certificate, the only one that the client trusts. type: of the display, or of the
    serial port's device."""

    uuid: str
    kind: str
    port: int
    authority: str
    type: str


@dataclass(frozen=True)
class Display(Message):
    """A screen or serial port. type: vnc, spice, serial and so on. socket, port: its location on
    the host, if any. connect: command from the host's network; tunnel: command to run first."""

    type: str
    listen: str | None = None
    port: int | None = None
    socket: str | None = None
    connect: str | None = None
    tunnel: str | None = None


@dataclass(frozen=True)
class Displays(Message):
    """Answer of `virt.display`. host: its name in libvirt. state: of the guest."""

    uuid: str
    host: str
    state: str
    displays: tuple[Display, ...]


@dataclass(frozen=True)
class Screenshot(Message):
    """Answer of `virt.screen`. png: the screenshot in base64."""

    uuid: str
    png: str
