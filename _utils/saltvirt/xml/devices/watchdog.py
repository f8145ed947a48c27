"""The watchdog device of the guest."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device


class Watchdog(Device):
    """``<watchdog>``."""

    TAG = "watchdog"

    model = Prop("@model")
    action = Prop("@action")
