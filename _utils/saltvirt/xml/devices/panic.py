"""The device by which a guest reports the panic of its kernel."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device


class Panic(Device):
    """``<panic>``."""

    TAG = "panic"

    model = Prop("@model")
