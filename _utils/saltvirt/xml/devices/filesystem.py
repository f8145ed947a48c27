"""A folder of the host that is visible in the guest; for a container also its root."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import FLAG


class Filesystem(Device):
    """``<filesystem>``."""

    TAG = "filesystem"

    type = Prop("@type")
    access_mode = Prop("@accessmode")
    driver_type = Prop("driver/@type")
    driver_format = Prop("driver/@format")
    cache_mode = Prop("binary/cache/@mode")
    source_dir = Prop("source/@dir")
    source_file = Prop("source/@file")
    source_dev = Prop("source/@dev")
    target = Prop("target/@dir")
    read_only = Prop("readonly", FLAG)
