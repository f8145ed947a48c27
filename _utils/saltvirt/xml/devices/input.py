"""Keyboard, mouse, tablet."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import ON_OFF

# buses of devices that belong to the machine: libvirt adds them itself
BUILT_IN = ("ps2", "xen")


class Input(Device):
    """``<input>``."""

    TAG = "input"

    type = Prop("@type")
    bus = Prop("@bus")
    model = Prop("@model")
    source_dev = Prop("source/@dev")
    grab = Prop("source/@grab")
    repeat = Prop("source/@repeat", ON_OFF)
