"""A display: VNC or SPICE."""

from __future__ import annotations

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import INT, YES_NO


class Listen(Element):
    """``<listen>``: an address, a libvirt network, a socket, or none."""

    TAG = "listen"

    type = Prop("@type")
    address = Prop("@address")
    network = Prop("@network")
    socket = Prop("@socket")


class Graphics(Device):
    """``<graphics>``. Its repr never shows the password."""

    TAG = "graphics"

    type = Prop("@type")
    port = Prop("@port", INT)
    tls_port = Prop("@tlsPort", INT)
    websocket = Prop("@websocket", INT)
    autoport = Prop("@autoport", YES_NO)
    listen = Prop("@listen")
    keymap = Prop("@keymap")
    password = Prop("@passwd")
    password_valid_to = Prop("@passwdValidTo")
    share_policy = Prop("@sharePolicy")
    default_mode = Prop("@defaultMode")
    socket = Prop("@socket")
    listens = Children("listen", Listen)
    image_compression = Prop("image/@compression")
    gl = Prop("gl/@enable", YES_NO)

    def __repr__(self) -> str:
        return f"<Graphics type={self.type!r} port={self.port!r}>"
