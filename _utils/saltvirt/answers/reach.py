"""What hosts answer of a guest's screens and serial ports."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.schema import Message

DISPLAY, SERIAL, AGENT = "display", "serial", "agent"
# what a ticket can be for; a guest's agent is reached by the runner alone
KINDS = (DISPLAY, SERIAL)
# the name in the certificate of each hypervisor's door: no other one has the same authority
CERTIFICATE_NAME = "salt-virt-reach"


@dataclass(frozen=True)
class Reach(Message):
    """What `virt.reach` answers: one caller is waited for. kind: DISPLAY or SERIAL. authority: of
    the certificate that is shown to him, in PEM; he trusts no other. type: of the display, or of
    the serial port's device."""

    uuid: str
    kind: str
    port: int
    authority: str
    type: str


@dataclass(frozen=True)
class Display(Message):
    """One screen or serial port. type: vnc, spice, serial and the like. socket, port: where it is
    on its host, if it is there. connect: what reaches it from the host's network; tunnel: what to
    run first for that."""

    type: str
    listen: str | None = None
    port: int | None = None
    socket: str | None = None
    connect: str | None = None
    tunnel: str | None = None


@dataclass(frozen=True)
class Displays(Message):
    """What `virt.display` answers. host: as libvirt there calls it. state: of the guest."""

    uuid: str
    host: str
    state: str
    displays: tuple[Display, ...]


@dataclass(frozen=True)
class Screenshot(Message):
    """What `virt.screen` answers. png: the picture in base64."""

    uuid: str
    png: str
