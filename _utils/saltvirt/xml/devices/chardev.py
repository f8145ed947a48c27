"""Character devices: serial ports, consoles and channels."""

from saltvirt.xml.base import Child, Element, Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import INT, ON_OFF, YES_NO


class CharSource(Element):
    """``<source>``: the host's end."""

    TAG = "source"

    mode = Prop("@mode")
    path = Prop("@path")
    host = Prop("@host")
    service = Prop("@service", INT)
    tls = Prop("@tls", YES_NO)
    append = Prop("@append", ON_OFF)
    channel = Prop("@channel")


class CharDevice(Device):
    """Base of serial ports, consoles and channels."""

    type = Prop("@type")
    tty = Prop("@tty")
    source = Child("source", CharSource)
    protocol = Prop("protocol/@type")
    log_file = Prop("log/@file")
    log_append = Prop("log/@append", ON_OFF)
    target_type = Prop("target/@type")
    target_port = Prop("target/@port", INT)


class Serial(CharDevice):
    """``<serial>``."""

    TAG = "serial"

    target_model = Prop("target/model/@name")


class Console(CharDevice):
    """``<console>``."""

    TAG = "console"


class Channel(CharDevice):
    """``<channel>``: a named pipe between host and guest, for example to the guest agent."""

    TAG = "channel"

    name = Prop("target/@name")
    state = Prop("target/@state")
