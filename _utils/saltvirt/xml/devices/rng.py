"""The guest's source of random numbers."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import INT


class Rng(Device):
    """``<rng>``."""

    TAG = "rng"

    model = Prop("@model")
    rate_bytes = Prop("rate/@bytes", INT)
    rate_period_ms = Prop("rate/@period", INT)
    backend = Prop("backend/@model")
    source = Prop("backend")
