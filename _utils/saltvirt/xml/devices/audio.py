"""The audio backend of the guest."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import INT


class Audio(Device):
    """``<audio>``: spice, none, alsa …"""

    TAG = "audio"

    id = Prop("@id", INT)
    type = Prop("@type")


class RedirDevice(Device):
    """``<redirdev>``: a device of the machine that watches the display."""

    TAG = "redirdev"

    bus = Prop("@bus")
    type = Prop("@type")
