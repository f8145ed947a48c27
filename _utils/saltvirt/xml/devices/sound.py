"""A sound card."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device


class Sound(Device):
    """``<sound>``."""

    TAG = "sound"

    model = Prop("@model")
