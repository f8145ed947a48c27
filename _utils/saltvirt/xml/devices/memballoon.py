"""The memory balloon."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import INT, ON_OFF


class MemBalloon(Device):
    """``<memballoon>``."""

    TAG = "memballoon"

    model = Prop("@model")
    autodeflate = Prop("@autodeflate", ON_OFF)
    free_page_reporting = Prop("@freePageReporting", ON_OFF)
    stats_period_s = Prop("stats/@period", INT)
