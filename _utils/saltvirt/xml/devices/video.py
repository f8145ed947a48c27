"""The guest's graphics card."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import INT, YES_NO


class Video(Device):
    """``<video>``; video memory in KiB."""

    TAG = "video"

    model = Prop("model/@type")
    vram_kib = Prop("model/@vram", INT)
    heads = Prop("model/@heads", INT)
    primary = Prop("model/@primary", YES_NO)
    accel3d = Prop("model/acceleration/@accel3d", YES_NO)
