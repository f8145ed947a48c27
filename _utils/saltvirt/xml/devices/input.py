"""Keyboard, mouse, tablet."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device


class Input(Device):
    """``<input>``."""

    TAG = "input"

    type = Prop("@type")
    bus = Prop("@bus")
    model = Prop("@model")
